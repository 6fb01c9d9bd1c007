//! Clients whose processes the gateway may not inspect.

use leash_tree::owner::peer::{Holders, Lookup, UnknownReason, holders};
use leash_tree::platform::proc::Proc;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::{User, Who};

use super::{Gateway, with_gateway};

/// Checks what a gateway of `who` sees of a client of `client`.
fn check(client: Who, who: Who, is_right: fn(&Holders, &[i32]) -> bool) {
    or_skip!(Scene::set(Who::Root));
    let scene = or_skip!(Scene::set(client));
    // The same uid for both if both are the user.
    let user = if who == client { *scene.user() } else { or_skip!(User::find(who)) };
    with_gateway("127.0.0.1", async |gateway: &Gateway| {
        let client = gateway.client(&scene, "127.0.0.1", &[]);
        let accepted = gateway.accept().await;
        let uid = scene.user().uid();
        let found = user.act(|| {
            let socket = Lookup::open().socket(accepted.peer, accepted.local).unwrap().expect("it is connected");
            assert_eq!(socket.uid, uid);
            holders(&Proc::own().unwrap(), socket, &client.pids())
        });
        assert!(is_right(&found, &client.pids()), "{found:?} of {:?}", client.pids());
    });
}

#[test]
fn a_user_may_not_look_at_root() {
    check(Who::Root, Who::User, |found, _| matches!(found, Holders::Unknown(UnknownReason::NotPermitted)));
}

#[test]
fn a_user_may_look_at_itself() {
    check(Who::User, Who::User, |found, pids| super::pids(found) == pids);
}

#[test]
fn a_user_may_not_look_at_another() {
    or_skip!(User::find(Who::Root));
    let scene = or_skip!(Scene::set(Who::User));
    let other = or_skip!(User::find(Who::User));
    with_gateway("127.0.0.1", async |gateway: &Gateway| {
        let mut client = gateway.client(&scene, "127.0.0.1", &[]);
        let accepted = gateway.accept().await;
        let socket = Lookup::open().socket(accepted.peer, accepted.local).unwrap().expect("it is connected");
        let look = || other.act(|| holders(&Proc::own().unwrap(), socket, &[]));
        assert!(matches!(look(), Holders::Unknown(UnknownReason::NotPermitted)), "{:?}", look());
        // It cannot see either that the client is gone.
        client.kill();
        assert!(matches!(look(), Holders::Unknown(UnknownReason::NotPermitted)), "{:?}", look());
    });
}

/// A user can see that no process has a socket of its own any more, although it may not inspect the processes of other
/// users.
#[test]
fn a_user_knows_when_its_own_client_is_gone() {
    or_skip!(User::find(Who::Root));
    let scene = or_skip!(Scene::set(Who::User));
    with_gateway("127.0.0.1", async |gateway: &Gateway| {
        let mut client = gateway.client(&scene, "127.0.0.1", &[]);
        let accepted = gateway.accept().await;
        let socket = Lookup::open().socket(accepted.peer, accepted.local).unwrap().expect("it is connected");
        client.kill();
        let found = scene.user().act(|| holders(&Proc::own().unwrap(), socket, &[]));
        assert!(matches!(found, Holders::None), "{found:?}");
    });
}
