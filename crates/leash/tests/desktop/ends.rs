//! The ends of sessions and of user managers. The servers of another person stay.

use rustix::process::Signal;
use serde_json::Value;
use testkit::or_skip;

use crate::person::{Person, Running, Tree, in_the_box, root, signal, within};

/// The trees of the person whose session ends.
const KINDS: [&str; 3] = ["chain", "stubborn", "daemon"];

/// Two people with servers over ssh. The session of the first one ends by `end`; the server of the second one must live.
fn check(linger: bool, end: impl Fn(&Person)) {
    let (first, second) = (Person::new(), Person::new());
    first.linger(linger);
    let mut doomed = KINDS.map(Tree::new);
    let mut spared = Tree::new("daemon");
    let hosts: Vec<Running> = doomed.iter().map(|tree| Running::start(first.ssh(&tree.on_a_leash(GRACE)))).collect();
    let mut other = Running::start(second.ssh(&spared.on_a_leash(GRACE)));
    doomed.iter_mut().for_each(Tree::wait_ready);
    spared.wait_ready();
    wait_recorded(&first, KINDS.len());
    end(&first);
    doomed.iter_mut().for_each(Tree::check_gone);
    spared.check_lives();
    other.close();
    spared.check_gone();
    drop(hosts);
}

const GRACE: &str = "--grace 500ms";

/// Waits until `leash ps` says that so many servers run in units; returns what it says.
fn wait_recorded(person: &Person, servers: usize) -> Vec<Value> {
    let look = || {
        let sessions = person.leash("ps --json").json()["sessions"].as_array().cloned().unwrap_or_default();
        let are_units = sessions.iter().all(|session| session["containment"] == "unit");
        (are_units && sessions.len() == servers).then_some(sessions)
    };
    within(look).unwrap_or_else(|| panic!("not {servers} units: {:?}\n{:#?}", person.leash("ps"), person.receipts()))
}

/// A person with a server over ssh. It must be gone after `end`, which has the connection to close.
fn check_closed(end: impl Fn(&Person, &Tree, &mut Running)) {
    let person = Person::new();
    let mut tree = Tree::new("daemon");
    let mut host = Running::start(person.ssh(&tree.on_a_leash(GRACE)));
    tree.wait_ready();
    wait_recorded(&person, 1);
    end(&person, &tree, &mut host);
    tree.check_gone();
}

#[test]
fn logout() {
    or_skip!(in_the_box());
    for linger in [false, true] {
        // The shells of the sessions are killed, as at the end of a connection.
        check(linger, Person::log_out);
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
        for session in wait_recorded(person, KINDS.len()) {
            for process in ["supervisor", "keeper"] {
                signal(session[process]["pid"].as_i64().expect("it is recorded") as i32, Signal::KILL);
            }
        }
    });
}

/// A restarted user manager has ended its units before, and runs new ones.
#[test]
fn user_manager_is_restarted() {
    or_skip!(in_the_box());
    check_closed(|person, _, _| {
        root("systemctl", &["restart", &format!("user@{}.service", person.uid())]);
        let mut next = Tree::new("chain");
        let mut host = Running::start(person.ssh(&next.on_a_leash(GRACE)));
        next.wait_ready();
        wait_recorded(person, 1);
        host.close();
        next.check_gone();
    });
}

/// A user manager that executes itself again, as after an update, keeps its units.
#[test]
fn user_manager_executes_itself_again() {
    or_skip!(in_the_box());
    check_closed(|person, tree, host| {
        assert_eq!(person.answer("systemctl --user daemon-reexec").code, 0);
        wait_recorded(person, 1);
        tree.check_lives();
        host.close();
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

/// The servers of a frozen slice go on after the thaw. Another person works in the meantime.
#[test]
fn slice_is_frozen_for_a_while() {
    or_skip!(in_the_box());
    check_closed(|person, tree, host| {
        let slice = format!("user-{}.slice", person.uid());
        root("systemctl", &["freeze", &slice]);
        check_closed(|_, _, other| other.close());
        root("systemctl", &["thaw", &slice]);
        wait_recorded(person, 1);
        tree.check_lives();
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
