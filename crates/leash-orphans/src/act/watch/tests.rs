use super::*;
use crate::facts::Evidence;
use crate::judge::verdict::TreeRole;

fn finding(pid: i32, verdict: Verdict, ends_gone: bool, age: u64) -> Finding {
    let root = Identity { pid, start: 7, inode: None };
    Finding {
        role: TreeRole::Server,
        root,
        tree: vec![root],
        holder: None,
        client: None,
        server: None,
        identified_by: Evidence::Package { package: "x".to_owned() },
        verdict,
        evidence: Vec::new(),
        leashed: None,
        ends_gone,
        age: Duration::from_secs(age),
    }
}

fn at(second: u64) -> Moment {
    Moment::from_boot(Duration::from_secs(second))
}

/// Notes one scan a second and checks in which of them process 10 was due.
fn check(scans: &[Option<(Verdict, bool, u64)>], due: &[usize]) {
    let (mut memory, settings) = (WatchMemory::default(), WatchSettings::default());
    let mut ended = Vec::new();
    for (at_second, look) in scans.iter().enumerate() {
        let findings: Vec<Finding> =
            look.iter().map(|(verdict, gone, age)| finding(10, *verdict, *gone, *age)).collect();
        if !memory.note(&findings, &settings, at(at_second as u64)).is_empty() {
            ended.push(at_second);
        }
    }
    assert_eq!(ended, due, "{scans:?}");
}

#[test]
fn two_scans_in_a_row_and_a_minimum_age_are_needed() {
    let proved = Some((Verdict::OrphanProved, true, 100));
    let likely = Some((Verdict::OrphanLikely, true, 100));
    let live = Some((Verdict::Live, false, 100));
    let young = Some((Verdict::OrphanProved, true, 59));
    check(&[proved], &[]);
    check(&[proved, proved], &[1]);
    check(&[proved, live, proved], &[]);
    check(&[proved, None, proved], &[]);
    check(&[proved, likely, proved, proved], &[3]);
    check(&[young, young, young, proved], &[3]);
    check(&[likely; 9], &[]);
    check(&[live; 9], &[]);
}

/// The streams of which the kernel says that the other end is closed, and whether a young server is due then.
#[test]
fn low_memory_makes_a_young_server_due_only_if_the_kernel_reports_both_ends_closed() {
    use crate::facts::StdioStream::{Stdin, Stdout};
    for (closed, memory_is_low, expected) in [
        (&[Stdin, Stdout][..], true, true),
        (&[Stdin, Stdout], false, false),
        (&[Stdin], true, false),
        (&[], true, false),
    ] {
        let (mut memory, settings) =
            (WatchMemory::default(), WatchSettings { memory_is_low, ..WatchSettings::default() });
        let mut young = finding(10, Verdict::OrphanProved, true, 1);
        young.evidence = closed.iter().map(|stream| Evidence::EndGone { stream: *stream }).collect();
        assert!(memory.note(std::slice::from_ref(&young), &settings, at(0)).is_empty(), "two scans must agree");
        let due = !memory.note(std::slice::from_ref(&young), &settings, at(1)).is_empty();
        assert_eq!(due, expected, "{closed:?}, memory is low: {memory_is_low}");
        young.verdict = Verdict::OrphanLikely;
        assert!(memory.note(&[young], &settings, at(2)).is_empty(), "the proof is needed");
    }
}

#[test]
fn another_process_with_the_same_pid_starts_from_zero() {
    let (mut memory, settings) = (WatchMemory::default(), WatchSettings::default());
    assert!(memory.note(&[finding(10, Verdict::OrphanProved, true, 100)], &settings, at(0)).is_empty());
    let mut other = finding(10, Verdict::OrphanProved, true, 100);
    other.root.start = 8;
    assert!(memory.note(&[other], &settings, at(1)).is_empty());
}

#[test]
fn the_time_without_ends_is_counted_from_the_first_scan() {
    let (mut memory, settings) = (WatchMemory::default(), WatchSettings::default());
    let gone = finding(10, Verdict::OrphanLikely, true, 100);
    memory.note(std::slice::from_ref(&gone), &settings, at(5));
    memory.note(std::slice::from_ref(&gone), &settings, at(8));
    assert_eq!(memory.policy(&settings, at(9)).gone_for.get(&(10, 7)), Some(&Duration::from_secs(4)));
    memory.note(&[finding(10, Verdict::Live, false, 100)], &settings, at(10));
    assert!(memory.policy(&settings, at(11)).gone_for.is_empty());
}

#[test]
fn a_server_with_closed_ends_is_scanned_sooner() {
    let (mut memory, settings) = (WatchMemory::default(), WatchSettings::default());
    assert_eq!(memory.next_scan(&settings, INTERVAL, at(0)), at(60));
    memory.note(&[finding(10, Verdict::OrphanLikely, true, 100)], &settings, at(0));
    assert_eq!(memory.next_scan(&settings, INTERVAL, at(0)), at(5));
}

#[test]
fn a_budget_only_changes_the_order() {
    let mut due = vec![
        (finding(1, Verdict::OrphanProved, true, 10), 5),
        (finding(2, Verdict::OrphanProved, true, 30), 1),
        (finding(3, Verdict::OrphanProved, true, 20), 9),
    ];
    let pids = |due: &[(Finding, u64)]| due.iter().map(|(finding, _)| finding.root.pid).collect::<Vec<_>>();
    order(&mut due, 100, None);
    assert_eq!(pids(&due), [2, 3, 1]);
    order(&mut due, 100, Some(50));
    assert_eq!(pids(&due), [3, 1, 2]);
    order(&mut due, 40, Some(50));
    assert_eq!(pids(&due), [2, 3, 1]);
}
