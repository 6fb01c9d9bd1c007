//! `unit` is chosen without being asked, however the person is logged in.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use testkit::leash::leash;
use testkit::pty::Pty;
use testkit::wait::LIMIT;
use testkit::{or_skip, sys};

use crate::person::{Person, Running, Tree, in_the_box, until};

/// Waits until the tree runs, and checks that it runs in a unit.
fn check_unit(person: &Person, tree: &mut Tree) {
    tree.wait_ready();
    let sessions = until("a running session", || {
        let sessions = person.leash("ps --json").json()["sessions"].clone();
        sessions[0]["leader"].is_object().then_some(sessions)
    });
    assert_eq!(sessions[0]["containment"], "unit", "{sessions:#}");
    assert_eq!(sessions.as_array().map(Vec::len), Some(1), "{sessions:#}");
}

#[test]
fn over_ssh() {
    or_skip!(in_the_box());
    for linger in [false, true] {
        let person = Person::new();
        person.linger(linger);
        let mut tree = Tree::new("chain");
        let mut host = Running::start(person.ssh(&tree.on_a_leash("")));
        check_unit(&person, &mut tree);
        host.close();
        tree.check_gone();
    }
}

#[test]
fn on_a_terminal() {
    or_skip!(in_the_box());
    let person = Person::new();
    let mut tree = Tree::new("chain");
    let pty = Pty::open().expect("a terminal");
    let mut command = std::process::Command::new("login");
    command.args(["-f", &person.name]);
    for redirect in [std::process::Command::stdin, std::process::Command::stdout, std::process::Command::stderr] {
        redirect(&mut command, pty.terminal().expect("it is open"));
    }
    sys::prepare(&mut command, vec![pty.control().expect("it is open")]);
    let login = Login(command.spawn().expect("login starts"));
    pty.wait_shown("$ ", 1).expect("a prompt");
    pty.enter(&format!("{}\n", tree.on_a_leash("").trim_start_matches("exec "))).expect("it is open");
    check_unit(&person, &mut tree);
    // The terminal closes.
    pty.close();
    tree.check_gone();
    drop(login);
}

/// A `login` on a terminal.
struct Login(std::process::Child);

impl Drop for Login {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn in_systemd_run() {
    or_skip!(in_the_box());
    let person = Person::new();
    let mut tree = Tree::new("chain");
    let script = tree.on_a_leash("").replacen("exec ", "exec systemd-run --user --pipe --quiet ", 1);
    let mut host = Running::start(person.ssh(&script));
    check_unit(&person, &mut tree);
    host.close();
    tree.check_gone();
}

/// A service of the user manager, as desktops start programs automatically.
#[test]
fn in_a_service_of_the_user() {
    or_skip!(in_the_box());
    let person = Person::new();
    person.linger(true);
    let mut tree = Tree::new("chain");
    person.write(
        ".config/systemd/user/host.service",
        &format!("[Service]\nExecStart=/bin/sh -c '{}'\n", host_script(&tree)),
    );
    assert_eq!(person.answer("systemctl --user start host.service").code, 0);
    check_unit(&person, &mut tree);
    // The session that started the service has ended before.
    tree.check_lives();
    assert_eq!(person.answer("systemctl --user stop host.service").code, 0);
    tree.check_gone();
}

/// The host of the server is a shell that holds the server's stdin.
fn host_script(tree: &Tree) -> String {
    format!("sleep infinity | {} run -- {}", leash().display(), tree.words)
}

/// A program that a desktop starts after the login: systemd makes `app-host@autostart.service` of the entry.
#[test]
fn in_an_autostart_entry() {
    or_skip!(in_the_box());
    for linger in [false, true] {
        let person = Person::new();
        person.linger(linger);
        let mut tree = Tree::new("chain");
        let program = person.write("host", &format!("#!/bin/sh\n{}\n", host_script(&tree)));
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("we are root");
        let entry = format!("[Desktop Entry]\nType=Application\nName=Host\nExec={}\n", program.display());
        person.write(".config/autostart/host.desktop", &entry);
        // The box has no desktop that starts its entries. The unit is the one that a desktop starts.
        let unit = "app-host@autostart.service";
        let start = format!("systemctl --user daemon-reload && systemctl --user start {unit} && exec sleep infinity");
        let session = Running::start(person.ssh(&start));
        if let Err(heard) = tree.census.wait_ready(LIMIT) {
            let status = person.command("systemctl").args(["--user", "--no-pager", "status", unit]).output();
            panic!("the tree did not come up; it said: {heard}\n{status:?}");
        }
        check_unit(&person, &mut tree);
        let stopped = person.command("systemctl").args(["--user", "stop", unit]).output();
        assert!(stopped.as_ref().is_ok_and(|output| output.status.success()), "{stopped:?}");
        tree.check_gone();
        drop(session);
    }
}
