//! The owners of a connection.

use std::sync::Arc;

use leash_tree::owner::peer::{FoundPlace, Holders, PeerSocket, UnknownReason};
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::tcp_client::Client;
use testkit::user::Who;

use super::{Gateway, known, me, pids, soon, sorted, with_gateway};

/// Checks that the client is the only holder.
fn check_found(listen: &str, connect: &str, options: &[&str]) {
    let scene = or_skip!(Scene::set(me()));
    with_gateway(listen, async |gateway: &Gateway| {
        let client = gateway.client(&scene, connect, options);
        let owners = gateway.next_owners().await;
        assert_eq!(pids(&owners), client.pids(), "{connect} at {listen}");
    });
}

#[test]
fn ipv4() {
    check_found("127.0.0.1", "127.0.0.1", &[]);
}

#[test]
fn ipv6() {
    check_found("::1", "[::1]", &[]);
}

#[test]
fn ipv4_at_an_ipv6_listener() {
    check_found("::", "127.0.0.1", &[]);
}

#[test]
fn mapped_at_an_ipv6_listener() {
    check_found("::", "[::ffff:127.0.0.1]", &[]);
}

#[test]
fn mapped_at_an_ipv4_listener() {
    check_found("127.0.0.1", "[::ffff:127.0.0.1]", &[]);
}

#[test]
fn another_loopback_address() {
    check_found("127.0.0.7", "127.0.0.7", &[]);
}

/// As with `curl --interface lo`.
#[test]
fn bound_to_an_interface() {
    check_found("127.0.0.1", "127.0.0.1", &["--device", "lo"]);
}

#[test]
fn every_process_that_inherited_the_connection() {
    let scene = or_skip!(Scene::set(me()));
    with_gateway("127.0.0.1", async |gateway: &Gateway| {
        let client = gateway.client(&scene, "127.0.0.1", &["--fork", "2"]);
        let owners = gateway.next_owners().await;
        assert_eq!(pids(&owners), sorted(client.pids()));
    });
}

/// The first search makes the leader a hint, and its children are found through it.
#[test]
fn children_are_found_through_a_known_parent() {
    let scene = or_skip!(Scene::set(me()));
    with_gateway("127.0.0.1", async |gateway: &Gateway| {
        let client = gateway.client(&scene, "127.0.0.1", &["--connections", "2", "--fork", "1"]);
        for _ in 0..2 {
            assert_eq!(pids(&gateway.next_owners().await), sorted(client.pids()));
        }
    });
}

#[test]
fn a_connection_asked_about_again_has_passed_to_the_child() {
    let scene = or_skip!(Scene::set(me()));
    with_gateway("127.0.0.1", async |gateway: &Gateway| {
        let mut client = gateway.client(&scene, "127.0.0.1", &["--fork", "1"]);
        let accepted = gateway.accept().await;
        assert_eq!(pids(&gateway.owners(&accepted).await), sorted(client.pids()));
        client.kill();
        assert_eq!(pids(&gateway.owners(&accepted).await), client.pids()[1..]);
    });
}

/// Owners that an earlier search found are owners for as long as all of them hold the connection.
#[test]
fn remembered_owners_still_hold_the_connection() {
    let scene = or_skip!(Scene::set(me()));
    with_gateway("127.0.0.1", async |gateway: &Gateway| {
        for leave in [Client::close, Client::kill] {
            let mut client = gateway.client(&scene, "127.0.0.1", &["--fork", "1"]);
            let accepted = gateway.accept().await;
            let Holders::Known(found) = gateway.owners(&accepted).await else { panic!("the owners are known") };
            let places: Vec<FoundPlace> = found.iter().map(FoundPlace::of).collect();
            let socket = accepted.socket.expect("its socket is known");
            let remembered = |places: &[FoundPlace], socket| {
                let processes = gateway.resolver.still_holding(places, socket)?;
                Some(sorted(processes.iter().map(|process| process.id.pid).collect()))
            };
            assert_eq!(remembered(&places, socket), Some(sorted(client.pids())));
            assert_eq!(remembered(&places, PeerSocket { inode: socket.inode + 1, ..socket }), None);
            assert_eq!(remembered(&[], socket), None, "there must be a search");
            leave(&mut client);
            assert_eq!(remembered(&places, socket), None, "one of them has left");
        }
    });
}

#[test]
fn root_finds_the_client_of_another_user() {
    or_skip!(Scene::set(Who::Root));
    let scene = or_skip!(Scene::set(Who::User));
    assert!(!scene.user().is_root());
    with_gateway("127.0.0.1", async |gateway: &Gateway| {
        let client = gateway.client(&scene, "127.0.0.1", &[]);
        assert_eq!(pids(&gateway.next_owners().await), client.pids());
    });
}

/// The client died after its socket was found: its free pid is not reported as an owner.
#[test]
fn a_client_that_is_gone_before_the_search() {
    let scene = or_skip!(Scene::set(me()));
    with_gateway("127.0.0.1", async |gateway: &Gateway| {
        let mut client = gateway.client(&scene, "127.0.0.1", &[]);
        let accepted = gateway.accept().await;
        let owners = gateway.ask(&accepted).expect("its socket is known");
        client.kill();
        let owners = soon("the owners", owners).await;
        assert!(matches!(owners, Holders::None), "{owners:?}");
    });
}

#[test]
fn a_connection_that_a_living_client_has_closed() {
    let scene = or_skip!(Scene::set(me()));
    with_gateway("127.0.0.1", async |gateway: &Gateway| {
        let mut client = gateway.client(&scene, "127.0.0.1", &[]);
        let accepted = gateway.accept().await;
        client.close();
        let owners = gateway.owners(&accepted).await;
        assert!(matches!(owners, Holders::None), "{owners:?}");
    });
}

/// 200 connections at once need one or two searches, and connections of one search share the handle.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test that gets no thread may panic")]
fn a_burst_of_one_client_is_held_once() {
    let scene = or_skip!(Scene::set(me()));
    with_gateway("127.0.0.1", async |gateway: &Gateway| {
        // More than a backlog: the client waits until we accept.
        let command = gateway.client_command(&scene, "127.0.0.1", &["--connections", "200"]);
        let starting = tokio::task::spawn_blocking(move || Client::start(command));
        let mut accepted = Vec::new();
        for _ in 0..200 {
            accepted.push(gateway.accept().await);
        }
        let client = soon("the client", starting).await.expect("the client starts");
        // All of them are requested before the search runs.
        let waiting: Vec<_> =
            accepted.iter().map(|accepted| gateway.ask(accepted).expect("its socket is known")).collect();
        let mut all = Vec::new();
        for owners in waiting {
            all.push(soon("the owners", owners).await);
        }
        assert!(all.iter().all(|owners| pids(owners) == client.pids()), "{all:?}");
        assert!(all.iter().all(|owners| Arc::ptr_eq(known(owners)[0], known(&all[0])[0])), "held more than once");
    });
}

/// Checks that a program that only forwards data is no owner: sessions must not depend on its life.
fn check_stand_in(name: &str, why: UnknownReason) {
    let scene = or_skip!(Scene::set(me()));
    with_gateway("127.0.0.1", async |gateway: &Gateway| {
        let _client = gateway.client(&scene, "127.0.0.1", &["--name", name]);
        let owners = gateway.next_owners().await;
        assert!(matches!(owners, Holders::Unknown(because) if because == why), "{name}: {owners:?}");
    });
}

#[test]
fn a_forwarder_is_no_owner() {
    check_stand_in("sshd", UnknownReason::Forwarder);
    check_stand_in("systemd-socket-proxyd", UnknownReason::Forwarder);
}

#[test]
fn a_messenger_is_no_owner() {
    check_stand_in("curl", UnknownReason::Messenger);
}

/// The kernel says that the socket is held, and no other process has it: the gateway is connected to itself.
#[test]
fn our_own_connection_has_no_known_owner() {
    with_gateway("127.0.0.1", async |gateway: &Gateway| {
        let _client = std::net::TcpStream::connect(gateway.listener.local_addr().unwrap()).unwrap();
        let owners = gateway.next_owners().await;
        assert!(matches!(owners, Holders::Unknown(UnknownReason::Ourselves)), "{owners:?}");
    });
}

#[test]
fn a_client_elsewhere_is_remote() {
    with_gateway("127.0.0.1", async |gateway: &Gateway| {
        let (peer, local) = ("192.0.2.1:40000".parse().unwrap(), "192.0.2.2:5327".parse().unwrap());
        let owners = gateway.resolver.owners_of(peer, local, PeerSocket { inode: 7, uid: 0 }).await;
        assert!(matches!(owners, Holders::Unknown(UnknownReason::Remote)), "{owners:?}");
    });
}
