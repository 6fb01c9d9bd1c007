//! Root ends the orphans of all users. Runs in its own PID namespace, which has no orphans of others.

use std::process::{Command, Stdio};

use serde_json::Value;
use testkit::leash::Answer;
use testkit::namespace::inside;
use testkit::or_skip;
use testkit::user::{User, Who};
use testkit::wait::LIMIT;

use super::hosts::{self, Host, server};
use super::zoo::{Zoo, living};

fn reap(zoo: &Zoo) -> Answer {
    let mut command = Command::new(testkit::leash::leash());
    command.args(["reap", "--grace", "200ms", "--json", "--yes"]).current_dir(zoo.home());
    command.env("HOME", zoo.home()).env("LEASH_RUNTIME_DIR", zoo.home().join("root"));
    command.env("XDG_STATE_HOME", zoo.home().join("root"));
    command.output().expect("cannot start leash").into()
}

#[test]
fn root_ends_the_orphans_of_all_users() {
    or_skip!(User::find(Who::Root));
    if !inside("superuser::root_ends_the_orphans_of_all_users", &[]) {
        return;
    }
    let mut zoo = Zoo::open(Who::User).expect("root can run as any user");
    zoo.fill();
    // An orphan of root, and a server that root holds.
    zoo.foreigner(true);
    let words = zoo.declared(false, "mixed", 8);
    let mut python = Command::new("/usr/bin/python3");
    python.stderr(Stdio::null());
    zoo.others.push(Host::start(hosts::python(python, &[server(&words)])));
    zoo.expect(false, 1);
    let stay = zoo.begin();
    let go = living(&zoo.doomed);
    assert!(stay.len() + go.len() >= 60, "{} and {} are not enough", stay.len(), go.len());
    let answer = reap(&zoo);
    assert_eq!(answer.code, 0, "{answer:?}");
    zoo.doomed.wait_gone(LIMIT).unwrap_or_else(|left| panic!("{left}\n{answer:?}"));
    assert_eq!(living(&zoo.safe), stay, "a process was touched: {answer:?}");
    let receipts = answer.json()["receipts"].as_array().map(Vec::len);
    assert_eq!(receipts, Some(10), "9 of the user and 1 of root: {answer:?}");
    assert_eq!(reap(&zoo).json()["receipts"], Value::Array(Vec::new()));
}
