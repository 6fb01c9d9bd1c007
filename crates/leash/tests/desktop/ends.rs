//! The ends of sessions and of user managers. The servers of another person stay.

use rustix::process::Signal;
use serde_json::Value;
use testkit::{or_skip, wait};

use crate::person::{Person, Running, Tree, in_the_box, root, signal};

/// Two people, each with a server over ssh. The session of the first one ends by `end`; the server of the second one
/// must live.
fn check(linger: bool, end: impl Fn(&Person)) {
    for kind in ["chain", "stubborn", "daemon"] {
        let (first, second) = (Person::new(), Person::new());
        first.linger(linger);
        let (mut doomed, mut spared) = (Tree::new(kind), Tree::new(kind));
        let host = Running::start(first.ssh(&doomed.on_a_leash("--grace 500ms")));
        let mut other = Running::start(second.ssh(&spared.on_a_leash("--grace 500ms")));
        doomed.wait_ready();
        spared.wait_ready();
        wait_recorded(&first);
        end(&first);
        doomed.check_gone();
        spared.check_lives();
        other.close();
        spared.check_gone();
        drop(host);
    }
}

/// Waits until `leash ps` says that the server runs in a unit; returns what it says.
fn wait_recorded(person: &Person) -> Value {
    wait::until("a unit", || {
        let session = person.leash("ps --json").json()["sessions"][0].clone();
        (session["containment"] == "unit").then_some(session)
    })
}

/// A person with a server over ssh. It must be gone after `end`, which has the connection to close.
fn check_closed(end: impl Fn(&Person, &Tree, &mut Running)) {
    let person = Person::new();
    let mut tree = Tree::new("daemon");
    let mut host = Running::start(person.ssh(&tree.on_a_leash("--grace 500ms")));
    tree.wait_ready();
    wait_recorded(&person);
    end(&person, &tree, &mut host);
    tree.check_gone();
}

#[test]
fn logout() {
    or_skip!(in_the_box());
    for linger in [false, true] {
        check(linger, |person| {
            // The shell of the session is killed, as at the end of a connection.
            let sessions = root("loginctl", &["show-user", "--property=Sessions", "--value", &person.name]);
            for session in sessions.split_whitespace() {
                root("loginctl", &["terminate-session", session]);
            }
        });
    }
}

#[test]
fn terminate_user() {
    or_skip!(in_the_box());
    for linger in [false, true] {
        check(linger, |person| drop(root("loginctl", &["terminate-user", &person.name])));
    }
}

#[test]
fn user_manager_is_stopped() {
    or_skip!(in_the_box());
    check(false, |person| drop(root("systemctl", &["stop", &format!("user@{}.service", person.uid())])));
}

#[test]
fn all_of_leash_is_killed_at_once() {
    or_skip!(in_the_box());
    check(false, |person| {
        let session = wait_recorded(person);
        for process in ["supervisor", "keeper"] {
            signal(session[process]["pid"].as_i64().expect("it is recorded") as i32, Signal::KILL);
        }
    });
}

/// Whether the system ends the server with the user manager or not: after the end of its host it is gone.
#[test]
fn user_manager_is_killed() {
    or_skip!(in_the_box());
    check_closed(|person, _, host| {
        signal(person.manager_pid(), Signal::KILL);
        host.close();
    });
}

/// A frozen slice can't run its processes; after the thaw they end.
#[test]
fn host_dies_while_the_slice_is_frozen() {
    or_skip!(in_the_box());
    check_closed(|person, tree, host| {
        let slice = format!("user-{}.slice", person.uid());
        root("systemctl", &["freeze", &slice]);
        host.close();
        tree.check_lives();
        root("systemctl", &["thaw", &slice]);
    });
}
