//! Tests that run in namespaces of their own: the test starts itself again inside.

use std::env;
use std::process::Command;

use crate::leash;

const INSIDE: &str = "TESTKIT_INSIDE";

/// Runs the test called `test` again in namespaces of its own, below a small init, with `options` for `zoo ns`.
/// True: this is the run inside. False: the run inside has passed.
///
/// # Panics
/// When the run inside fails.
pub fn inside(test: &str, options: &[&str]) -> bool {
    if env::var_os(INSIDE).is_some() {
        return true;
    }
    let this = env::current_exe().expect("the test has a path");
    let status = Command::new(leash::zoo())
        .args(["ns", "--pid", "--proc", "--init"])
        .args(options)
        .arg("--")
        .arg(this)
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        // Found before: inside, cargo is not to be run.
        .env("LEASH_BIN", leash::leash())
        .env("ZOO_BIN", leash::zoo())
        .status()
        .expect("cannot start zoo ns");
    assert!(status.success(), "inside the namespace: {status}");
    false
}

/// True if `--pid-max` is one of the namespace alone; else why not. Before Linux 6.14 the limit was one for the whole machine, and
/// must be left alone.
pub fn small_pid_max_is_private() -> Result<(), String> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match version >= (6, 14) {
        true => Ok(()),
        false => Err(format!("Linux {release} has one pid_max for all namespaces")),
    }
}
