//! Tests that run in their own namespaces: the test starts itself again inside.

use std::env;
use std::process::Command;

use crate::leash;

const INSIDE: &str = "TESTKIT_INSIDE";

/// Runs the test called `test` again in its own namespaces, below a small init, with `options` for `zoo ns`. Returns
/// true in the run inside, and false in the outer run after the inner one has passed.
///
/// # Panics
/// If the run inside fails.
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
        // The programs are found before: cargo must not run inside.
        .env("LEASH_BIN", leash::leash())
        .env("ZOO_BIN", leash::zoo())
        .status()
        .expect("cannot start zoo ns");
    assert!(status.success(), "inside the namespace: {status}");
    false
}

/// Checks that `--pid-max` only affects the namespace; the error says why not. Before Linux 6.14 the limit applied to
/// the whole machine, and must not be changed.
pub fn small_pid_max_is_private() -> Result<(), String> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match version >= (6, 14) {
        true => Ok(()),
        false => Err(format!("Linux {release} has one pid_max for all namespaces")),
    }
}
