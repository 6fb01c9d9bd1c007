use super::*;
use crate::{host::journal::StandInEvent, report::Status};
use leash_model::identity::Identity;

fn entry(part: StandInRole, pid: i32, event: StandInEvent) -> JournalEntry {
    JournalEntry { part, pid, event }
}

fn session(event: fn(String) -> StandInEvent) -> JournalEntry {
    entry(StandInRole::Http, 9, event("s1".to_owned()))
}

fn survivor(pid: i32) -> Survivor {
    Survivor {
        id: Identity { pid, start: 1, inode: None },
        name: "leash".to_owned(),
        command: "leash check".to_owned(),
        ports: BTreeSet::new(),
    }
}

/// A run of a correct host.
fn good(ending: HostEnding) -> HostRun {
    HostRun {
        ending,
        journal: vec![
            entry(StandInRole::Polite, 1, StandInEvent::Connected),
            entry(StandInRole::Deaf, 2, StandInEvent::Connected),
            entry(StandInRole::Helper, 3, StandInEvent::Started),
            session(|session| StandInEvent::Opened { session }),
            entry(StandInRole::Http, 9, StandInEvent::Connected),
            session(|session| StandInEvent::Deleted { session }),
        ],
        before: 0,
        stayed: true,
        left_after: Some(Duration::from_millis(30)),
        time_limit: Duration::from_secs(10),
        left: Vec::new(),
        stderr_tail: String::new(),
        took: Duration::from_secs(1),
    }
}

/// Checks the rows that are not `Pass`.
fn check(run: HostRun, expected: &[(&str, Status)]) {
    check_runs(&[run], expected);
}

/// The same for several runs.
fn check_runs(runs: &[HostRun], expected: &[(&str, Status)]) {
    let rows = rows(runs);
    let found: Vec<(&str, Status)> =
        rows.iter().filter(|row| row.status != Status::Pass).map(|row| (row.id.as_str(), row.status)).collect();
    assert_eq!(found, expected, "{rows:#?}");
}

#[test]
fn a_good_host_passes_every_ending() {
    for ending in ENDINGS {
        check(good(ending), &[]);
    }
}

#[test]
fn survivors_are_findings_but_warnings_if_the_host_was_killed() {
    let term = HostEnding::Signal(Signal::TERM);
    check(HostRun { left: vec![survivor(2), survivor(3)], ..good(term) }, &[("host.term.servers", Status::Fail)]);
    check(HostRun { left: vec![survivor(3)], ..good(term) }, &[("host.term.servers", Status::Warn)]);
    check(HostRun { left: vec![survivor(2)], ..good(HostEnding::Kill) }, &[("host.kill.servers", Status::Warn)]);
    let rows = rows(&[HostRun { left: vec![survivor(2), survivor(3), survivor(44)], ..good(term) }]);
    let row = rows.iter().find(|row| row.id == "host.term.servers").expect("the row exists");
    assert!(row.detail.starts_with("3 left: the server that leaves on SIGTERM only, a helper of that server, leash ("));
}

/// Then no process was left to see; the report must not credit the ending for that.
#[test]
fn servers_released_before_the_end_are_reported_as_such() {
    let eofs = [StandInRole::Polite, StandInRole::Deaf].map(|part| entry(part, 1, StandInEvent::Eof));
    let mut run = good(HostEnding::Kill);
    run.journal.extend(eofs);
    run.before = run.journal.len();
    let details: Vec<String> = rows(&[run]).into_iter().map(|row| row.detail).collect();
    assert_eq!(details[2..], ["none; it had closed their pipes before", "1 of 1, before it was ended"]);
}

#[test]
fn a_session_without_delete_is_a_finding() {
    let without = |ending| {
        let mut run = good(ending);
        run.journal.pop();
        run
    };
    check(without(HostEnding::Signal(Signal::INT)), &[("host.int.sessions", Status::Fail)]);
    check(without(HostEnding::Kill), &[("host.kill.sessions", Status::Warn)]);
}

#[test]
fn a_host_that_stays_is_a_finding_unless_only_its_stdin_was_closed() {
    let hup = HostRun { left_after: None, ..good(HostEnding::Signal(Signal::HUP)) };
    let skipped = |id| (id, Status::Skip);
    check(hup, &[("host.hup.leaves", Status::Fail), skipped("host.hup.servers"), skipped("host.hup.sessions")]);
    let exit = HostRun { left_after: None, ..good(HostEnding::Exit) };
    check(exit, &["host.exit.leaves", "host.exit.servers", "host.exit.sessions"].map(skipped));
}

#[test]
fn a_host_that_connects_to_no_server_is_not_judged() {
    let all = ["host.exit.leaves", "host.exit.servers", "host.exit.sessions"].map(|id| (id, Status::Skip));
    let found: Vec<_> = [("host.connects", Status::Fail)].into_iter().chain(all).collect();
    check(HostRun { journal: Vec::new(), ..good(HostEnding::Exit) }, &found);
}

/// A host that finishes its work and exits is judged by that exit, not by a signal that came too late.
#[test]
fn a_host_that_leaves_by_itself_is_judged_by_its_exit() {
    check(HostRun { stayed: false, ..good(HostEnding::Exit) }, &[]);
    let left = HostRun { stayed: false, left: vec![survivor(2)], ..good(HostEnding::Exit) };
    check(left, &[("host.exit.servers", Status::Fail)]);
    let all = ["host.term.leaves", "host.term.servers", "host.term.sessions"].map(|id| (id, Status::Skip));
    check(HostRun { stayed: false, ..good(HostEnding::Signal(Signal::TERM)) }, &all);
}

/// For example, its last end left a lock. It connected before, so this is a finding and not a skip.
#[test]
fn a_host_that_does_not_connect_any_more_is_a_finding() {
    let silent = |ending| HostRun { journal: Vec::new(), stderr_tail: "locked".to_owned(), ..good(ending) };
    let term = HostEnding::Signal(Signal::TERM);
    let skipped = |id| (id, Status::Skip);
    let found = [("host.term.leaves", Status::Fail), skipped("host.term.servers"), skipped("host.term.sessions")];
    check_runs(&[good(HostEnding::Exit), silent(term)], &found);
    let rows = rows(&[good(HostEnding::Exit), silent(term)]);
    let row = rows.iter().find(|row| row.id == "host.term.leaves").expect("the row exists");
    assert_eq!(row.detail, "it connected to no server this time; it said: locked");
    let left_at_once = HostRun { stayed: false, ..silent(HostEnding::Kill) };
    let found = [("host.kill.leaves", Status::Fail), skipped("host.kill.servers"), skipped("host.kill.sessions")];
    check_runs(&[good(HostEnding::Exit), left_at_once], &found);
    // The host may wait for an answer from a user.
    let all = ["host.terminal.leaves", "host.terminal.servers", "host.terminal.sessions"].map(skipped);
    check_runs(&[good(HostEnding::Exit), silent(HostEnding::Terminal)], &all);
}

/// Processes that are left are a finding, independent of the host's other behaviour.
#[test]
fn processes_that_are_left_are_a_finding_in_every_run() {
    let term = HostEnding::Signal(Signal::TERM);
    let opened = vec![session(|session| StandInEvent::Opened { session })];
    let run = HostRun { journal: opened.clone(), left: vec![survivor(44)], ..good(term) };
    let found = ["host.term.leaves", "host.term.servers", "host.term.sessions"].map(|id| (id, Status::Fail));
    check_runs(&[good(HostEnding::Exit), run], &found);
    // It exited before SIGKILL was sent.
    let early = HostRun { stayed: false, left: vec![survivor(2)], ..good(HostEnding::Kill) };
    let skipped = |id| (id, Status::Skip);
    check(early, &[skipped("host.kill.leaves"), ("host.kill.servers", Status::Fail), skipped("host.kill.sessions")]);
    // A host that is still alive may still need its session.
    let stays = HostRun { journal: opened, left_after: None, ..good(term) };
    let found = [("host.term.leaves", Status::Fail), skipped("host.term.servers"), skipped("host.term.sessions")];
    check_runs(&[good(HostEnding::Exit), stays], &found);
}
