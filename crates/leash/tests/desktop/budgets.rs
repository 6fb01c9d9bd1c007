//! Budgets of memory, processes and processor time, enforced by the kernel.

use std::process::{Output, Stdio};

use serde_json::Value;
use testkit::leash::leash;
use testkit::or_skip;

use crate::person::{FORKS, Person, in_the_box, root};

/// Runs a server with an open stdin until it ends, and returns the only receipt of the person.
fn receipt(person: &Person, options: &str, server: &str) -> (Output, Value) {
    let mut ssh = person.ssh(&format!("exec {} run {options} -- {server}", leash().display()));
    let mut child =
        ssh.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ssh starts");
    let stdin = child.stdin.take();
    let output = child.wait_with_output().expect("it was not waited for");
    drop(stdin);
    let receipts = person.receipts();
    assert_eq!(receipts.len(), 1, "{receipts:#?}");
    (output, receipts[0].clone())
}

/// A server that wants far more than its budget is killed by the kernel, with all of its tree.
#[test]
fn memory_at_once() {
    or_skip!(in_the_box());
    let person = Person::new();
    let greedy = r#"python3 -c 'b"x" * (500 << 20)'"#;
    let (output, receipt) = receipt(&person, "--memory 64M", greedy);
    assert!(!output.status.success(), "{output:?}");
    assert_eq!(receipt["reason"]["kind"], "memory_budget", "{receipt:#}");
    assert_eq!(receipt["containment"], "unit", "{receipt:#}");
    assert_eq!(receipt["holdings"][0]["fate"], "gone", "{receipt:#}");
}

/// A server that goes over its budget little by little is slowed down by the kernel and then ended by leash.
#[test]
fn memory_slowly() {
    or_skip!(in_the_box());
    let person = Person::new();
    let leak = r#"python3 -c '
import time
kept = []
while True:
    kept.append(b"x" * (1 << 20))
    time.sleep(0.02)
'"#;
    let (_, receipt) = receipt(&person, "--memory 64M --grace 1s", leak);
    assert_eq!(receipt["reason"]["kind"], "memory_budget", "{receipt:#}");
    assert_eq!(receipt["holdings"][0]["fate"], "gone", "{receipt:#}");
}

/// The pages of files that a server reads count as its memory, but the kernel takes them back. Such a server lives.
#[test]
fn memory_of_files() {
    or_skip!(in_the_box());
    let person = Person::new();
    let reader = r#"python3 -c '
import time
name = "large"
with open(name, "wb") as file:
    for _ in range(200):
        file.write(b"x" * (1 << 20))
began = time.monotonic()
while time.monotonic() - began < 12:
    with open(name, "rb") as file:
        while file.read(1 << 20):
            pass
print("done")
'"#;
    let (output, receipt) = receipt(&person, "--memory 64M", reader);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "done", "{receipt:#}");
    assert_eq!(receipt["reason"]["kind"], "server_exited", "{receipt:#}");
}

/// A server without a budget that the kernel kills: the receipt says so.
#[test]
fn killed_for_lack_of_memory() {
    or_skip!(in_the_box());
    let person = Person::new();
    let slice = format!("user-{}.slice", person.uid());
    // The whole person has too little memory, as if the machine had.
    root("systemctl", &["set-property", "--runtime", &slice, "MemoryMax=200M", "MemorySwapMax=0"]);
    let greedy = r#"python3 -c 'b"x" * (500 << 20)'"#;
    let (_, receipt) = receipt(&person, "", greedy);
    assert_eq!(receipt["reason"]["kind"], "server_exited", "{receipt:#}");
    assert_eq!(receipt["holdings"][0]["memory_kills"], 1, "{receipt:#}");
}

/// The kernel refuses processes beyond the limit; the server goes on.
#[test]
fn processes() {
    or_skip!(in_the_box());
    let person = Person::new();
    let (output, _) = receipt(&person, "--pids 10", FORKS);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let started: u32 = said.trim().parse().unwrap_or_else(|_| panic!("{output:?}"));
    assert!((1..10).contains(&started), "{started} processes");
}

/// The cgroup of the tree has the asked share of the processors.
#[test]
fn processor_time() {
    or_skip!(in_the_box());
    for (option, file, expected) in [("--cpu 50%", "cpu.max", "50000 100000"), ("--cpu 20", "cpu.weight", "20")] {
        let person = Person::new();
        let show = format!(r#"sh -c 'cat /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/{file}'"#);
        let (output, _) = receipt(&person, option, &show);
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected, "{output:?}");
    }
}
