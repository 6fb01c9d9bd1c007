//! The modules' own tests, on a scene: nothing is left after them.

use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal};
use testkit::or_skip;
use testkit::process::Handle;
use testkit::wait::LIMIT;

use super::stage::{Stage, source};

#[test]
fn typescript() {
    let stage = or_skip!(Stage::set());
    let mut command = stage.scene.command("node");
    command.args(["--test", "test/link.test.mjs", "test/sessions.test.mjs", "test/types.test.mjs"]);
    command.current_dir(source("clients/typescript"));
    check(stage, command, "# fail 0");
}

#[test]
fn python() {
    let stage = or_skip!(Stage::set());
    let mut command = stage.scene.command("python3");
    command.args(["-W", "error", "-m", "unittest", "discover", "--start-directory", "tests", "--verbose"]);
    command.env("PYTHONPATH", "src").current_dir(source("clients/python"));
    check(stage, command, "OK");
}

/// Runs them. `verdict` is a line that they print at the end.
fn check(stage: Stage, mut command: Command, verdict: &str) {
    let path = stage.scene.dir().join("said");
    let said = std::fs::File::create(&path).expect("cannot make a file");
    // A file instead of a pipe: a process that inherited a pipe would block the test.
    command.stdout(said.try_clone().expect("a file can be shared")).stderr(Stdio::from(said));
    let mut child = command.spawn().expect("cannot start the tests");
    let handle = Handle::open(Pid::from_child(&child), |_| true).expect("it is our child");
    let is_over = handle.wait_gone(3 * LIMIT);
    if !is_over {
        handle.signal(Signal::KILL).expect("cannot signal the tests");
    }
    let status = child.wait().expect("it is our child");
    let text = std::fs::read_to_string(&path).expect("it was just written");
    assert!(is_over && status.success(), "{text}");
    assert!(text.lines().any(|line| line == verdict), "no test ran: {text}");
    stage.check_end();
}
