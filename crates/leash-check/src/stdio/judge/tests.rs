use super::*;
use crate::{report::Status, stdio::plan::PLAN};
use leash_model::identity::Identity;

const GRACE: Duration = Duration::from_secs(2);

fn done(server: &str) -> Handshake {
    Handshake::Done { server: server.to_owned(), version: "2025-11-25".to_owned(), took: Duration::from_millis(40) }
}

/// The facts of a correct server.
fn good() -> Vec<StdioRun> {
    PLAN.iter()
        .map(|probe| StdioRun {
            probe: *probe,
            handshake: matches!(probe.stage, ExitStage::Ready | ExitStage::InFlight).then(|| done("good")),
            answered: false,
            lived: true,
            left_after: Some(Duration::from_millis(12)),
            exit: Some(Exit::Code(0)),
            time_limit: GRACE,
            ports: BTreeSet::new(),
            left: Vec::new(),
            ports_left: BTreeSet::new(),
            stderr_tail: String::new(),
            took: Duration::from_millis(100),
        })
        .collect()
}

fn survivor(name: &str) -> Survivor {
    Survivor {
        id: Identity { pid: 77, start: 1, inode: None },
        name: name.to_owned(),
        command: format!("/opt/{name} --x"),
        ports: BTreeSet::from([8080]),
    }
}

/// Checks the rows that are not `Pass`.
fn check(runs: &[StdioRun], again: Option<&Handshake>, expected: &[(&str, Status)]) {
    let rows = rows(runs, again, GRACE);
    let found: Vec<(&str, Status)> =
        rows.iter().filter(|row| row.status != Status::Pass).map(|row| (row.id.as_str(), row.status)).collect();
    assert_eq!(found, expected, "{rows:#?}");
}

#[test]
fn a_good_server_passes_everything() {
    check(&good(), Some(&done("good")), &[]);
}

#[test]
fn a_server_that_stays_is_a_finding() {
    let mut runs = good();
    runs[0].left_after = None;
    check(&runs, Some(&done("good")), &[("stdio.eof", Status::Fail)]);
}

/// If the call was answered before, the server did not exit with a call in flight; the report must say so.
#[test]
fn a_call_that_was_too_short_is_reported() {
    let mut runs = good();
    runs[3].answered = true;
    let rows = rows(&runs, Some(&done("good")), GRACE);
    let told = rows.iter().filter(|row| row.detail.contains("the call was answered before"));
    assert_eq!(told.map(|row| row.id.as_str()).collect::<Vec<_>>(), ["stdio.eof-in-flight"]);
}

/// A server that crashed on a call, or did not start, gets no pass for being gone.
#[test]
fn a_server_that_exited_too_early_is_a_finding() {
    let mut runs = good();
    for number in [4, 7] {
        (runs[number].lived, runs[number].exit) = (false, Some(Exit::Code(3)));
    }
    let found = [("stdio.term-in-flight", Status::Fail), ("stdio.term-before-handshake", Status::Fail)];
    check(&runs, Some(&done("good")), &found);
    let rows = rows(&runs, Some(&done("good")), GRACE);
    let told = rows.iter().filter(|row| row.detail == "it had exited before it was asked, exit code 3");
    assert_eq!(told.count(), 2, "{rows:#?}");
}

#[test]
fn helpers_are_not_judged_if_the_server_always_stays() {
    let mut runs = good();
    runs.iter_mut().for_each(|run| run.left_after = None);
    let rows = rows(&runs, Some(&done("good")), GRACE);
    assert_eq!(rows.iter().filter(|row| row.status == Status::Fail).count(), PLAN.len());
    assert_eq!(rows.iter().filter(|row| row.status == Status::Skip).count(), 3, "helpers, ports, browsers: {rows:#?}");
}

#[test]
fn a_helper_with_a_port_is_two_findings_and_a_browser_three() {
    let mut runs = good();
    runs[1].left = vec![survivor("watcher")];
    runs[1].ports_left = BTreeSet::from([8080]);
    check(&runs, Some(&done("good")), &[("stdio.helpers", Status::Fail), ("stdio.ports", Status::Fail)]);
    runs[1].left = vec![survivor("chrome")];
    let found = [("stdio.helpers", Status::Fail), ("stdio.ports", Status::Fail), ("stdio.browsers", Status::Fail)];
    check(&runs, Some(&done("good")), &found);
}

#[test]
fn without_a_handshake_the_other_rows_are_skipped() {
    let mut runs = good();
    runs[0].handshake = Some(Handshake::Left);
    let found: Vec<(&str, Status)> = std::iter::once(("stdio.handshake", Status::Fail))
        .chain(PLAN.iter().map(|probe| (probe.id, Status::Skip)))
        .chain([("stdio.again", Status::Skip)])
        .collect();
    check(&runs[..1], None, &found);
    check(&runs, Some(&Handshake::Left), &found);
}

#[test]
fn a_handshake_that_fails_later_is_a_finding() {
    let mut runs = good();
    runs[2].handshake = Some(Handshake::Silent);
    check(&runs, Some(&done("good")), &[("stdio.host-gone", Status::Fail)]);
}

#[test]
fn a_server_that_does_not_start_again_is_a_finding() {
    for again in [Handshake::Silent, Handshake::Left, Handshake::Refused("no".to_owned()), done("other")] {
        check(&good(), Some(&again), &[("stdio.again", Status::Fail)]);
    }
}
