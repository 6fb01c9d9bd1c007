//! Invented machines, and the verdicts expected for them.

mod naming;
mod properties;
mod tables;

use super::*;
use crate::facts::UnreadProcess;
use crate::knowledge::{DeclaredCommand, LeashedRun};
use leash_tree::tree::spec;

/// The user that scans, unless a test sets another.
const USER: u32 = 1000;

/// A process whose start time is its PID, so that parents with smaller PIDs are older.
fn process(pid: i32, ppid: i32, command: &str) -> Process {
    let mut process = Process::new(pid, pid as u64);
    process.ppid = ppid;
    process.uid = USER;
    process.argv = command.split(' ').map(str::to_owned).collect();
    process.comm = process.argv[0].clone();
    let nothing = Channel { kind: DescriptorKind::Null, other_end: OtherEnd::None };
    (process.stdin, process.stdout) = (nothing.clone(), nothing);
    process
}

/// A server with these ends.
fn server(pid: i32, ppid: i32, stdin: OtherEnd, stdout: OtherEnd) -> Process {
    let inode = pid as u64 * 10;
    Process {
        stdin: Channel { kind: DescriptorKind::Pipe { inode }, other_end: stdin },
        stdout: Channel { kind: DescriptorKind::Pipe { inode: inode + 1 }, other_end: stdout },
        ..process(pid, ppid, "srv")
    }
}

fn id(pid: i32) -> Identity {
    Identity { pid, start: pid as u64, inode: None }
}

fn held(by: &[i32]) -> OtherEnd {
    OtherEnd::Held { by: by.iter().map(|pid| id(*pid)).collect(), all: true }
}

fn machine(mut processes: Vec<Process>) -> Facts {
    if !processes.iter().any(|process| process.id.pid == 1) {
        processes.push(Process { uid: 0, ..process(1, 0, "init") });
    }
    processes.sort_by_key(|process| process.id.pid);
    Facts { processes, unread: Vec::new(), served: Vec::new(), now: 1_000_000, hertz: 100, uid: USER, whole: true }
}

fn knowledge() -> Knowledge {
    let declared = DeclaredCommand {
        client: "Test".to_owned(),
        name: "srv".to_owned(),
        command: vec!["srv".to_owned()],
        cwd: None,
        project: None,
        inside_only: false,
    };
    Knowledge { declared: vec![declared], ..Knowledge::default() }
}

fn verdicts(facts: &Facts, knowledge: &Knowledge, policy: &JudgePolicy) -> Vec<(i32, Verdict)> {
    judge(facts, knowledge, policy).iter().map(|finding| (finding.root.pid, finding.verdict)).collect()
}

/// Checks the verdicts, by PID.
fn check(processes: Vec<Process>, expected: &[(i32, Verdict)]) {
    let facts = machine(processes);
    assert_eq!(verdicts(&facts, &knowledge(), &JudgePolicy::default()), expected);
}
