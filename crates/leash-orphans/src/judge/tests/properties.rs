//! Properties of the verdicts on every machine.

use proptest::prelude::*;

use super::*;

/// The processes of a generated machine have the PIDs 2 to `MOST`.
const MOST: i32 = 12;

fn end() -> impl Strategy<Value = OtherEnd> {
    let holders = proptest::collection::vec(2..=MOST + 1, 1..4);
    prop_oneof![
        4 => Just(OtherEnd::Gone),
        4 => (holders, prop::bool::weighted(0.9)).prop_map(|(by, all)| {
            OtherEnd::Held { by: by.into_iter().map(id).collect(), all }
        }),
        1 => Just(OtherEnd::NotVisible(UnreadReason::Unseen)),
        1 => Just(OtherEnd::None),
    ]
}

fn channel(inode: u64) -> impl Strategy<Value = Channel> {
    let kinds = prop_oneof![
        8 => Just(DescriptorKind::Pipe { inode }),
        4 => Just(DescriptorKind::Socket { inode }),
        1 => Just(DescriptorKind::Null),
        1 => Just(DescriptorKind::Unread),
        1 => Just(DescriptorKind::Tty),
    ];
    (kinds, end()).prop_map(|(kind, other_end)| match kind {
        DescriptorKind::Pipe { .. } | DescriptorKind::Socket { .. } => Channel { kind, other_end },
        _ => Channel { kind, other_end: OtherEnd::None },
    })
}

fn any_process(pid: i32) -> impl Strategy<Value = Process> {
    let parent = prop_oneof![3 => Just(1), 2 => 1..pid.max(2)];
    let command = prop_oneof![5 => Just("srv"), 3 => Just("host"), 1 => Just("claude"), 1 => Just("sh -c srv")];
    let uid = prop_oneof![12 => Just(USER), 1 => Just(2000_u32)];
    let inode = pid as u64 * 10;
    (parent, command, uid, channel(inode), channel(inode + 1)).prop_map(move |(parent, command, uid, stdin, stdout)| {
        Process { uid, stdin, stdout, ..process(pid, parent, command) }
    })
}

prop_compose! {
    fn any_machine()(
        processes in (2..=MOST).map(any_process).collect::<Vec<_>>(),
        unread in proptest::collection::vec((50..60, prop_oneof![Just(0_u64), Just(100)]), 0..2),
        settled in any::<bool>(),
        whole in prop_oneof![4 => Just(true), 1 => Just(false)],
    ) -> (Facts, JudgePolicy) {
        // Start times are small, so every process but one with start 0 is young enough to have inherited an end.
        let unread = unread.into_iter().map(|(pid, start)| UnreadProcess {
            id: Identity { pid, start, inode: None },
            why: UnreadReason::NotPermitted,
        });
        let unread = unread.collect();
        let gone_for = (2..=MOST).filter(|_| settled).map(|pid| ((pid, pid as u64), Duration::from_secs(60)));
        let policy = JudgePolicy { gone_for: gone_for.collect(), ..JudgePolicy::default() };
        (Facts { unread, whole, ..machine(processes) }, policy)
    }
}

fn proved(findings: &[Finding]) -> Vec<&Finding> {
    findings.iter().filter(|finding| finding.verdict == Verdict::OrphanProved).collect()
}

fn proved_roots(facts: &Facts, policy: &JudgePolicy) -> Vec<i32> {
    proved(&judge(facts, &knowledge(), policy)).iter().map(|finding| finding.root.pid).collect()
}

/// The same machine with other PIDs, so that the order is reversed.
fn renumbered(facts: &Facts) -> Facts {
    let number = |pid: i32| if pid <= 1 || pid > MOST + 1 { pid } else { 100 - pid };
    let renumber = |id: &Identity| Identity { pid: number(id.pid), ..*id };
    let other = |channel: &Channel| Channel {
        kind: channel.kind,
        other_end: match &channel.other_end {
            OtherEnd::Held { by, all } => OtherEnd::Held { by: by.iter().rev().map(renumber).collect(), all: *all },
            end => end.clone(),
        },
    };
    let processes = facts.processes.iter().map(|process| Process {
        id: renumber(&process.id),
        ppid: number(process.ppid),
        session: number(process.session),
        stdin: other(&process.stdin),
        stdout: other(&process.stdout),
        ..process.clone()
    });
    let mut facts = Facts { processes: processes.collect(), ..facts.clone() };
    facts.processes.sort_by_key(|process| process.id.pid);
    facts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// Only members of proved trees hold the ends of a proved tree, and every process was read.
    #[test]
    fn a_proved_orphan_is_held_by_proved_orphans_only((facts, policy) in any_machine()) {
        let findings = judge(&facts, &knowledge(), &policy);
        let proved = proved(&findings);
        let disowned: HashSet<i32> = proved.iter().flat_map(|finding| &finding.tree).map(|id| id.pid).collect();
        for finding in &proved {
            let root = facts.same(&finding.root).unwrap();
            for channel in [&root.stdin, &root.stdout] {
                prop_assert!(channel.inode().is_some(), "no channel");
                match &channel.other_end {
                    OtherEnd::Gone => {}
                    OtherEnd::Held { by, all } => {
                        prop_assert!(*all && facts.whole);
                        prop_assert!(by.iter().all(|holder| facts.same(holder).is_some()), "an unknown holder");
                        prop_assert!(by.iter().all(|holder| disowned.contains(&holder.pid)), "a living holder");
                        prop_assert!(facts.unread.iter().all(|unread| unread.id.start == 0 && root.id.start >= 3000
                            || finding.tree.iter().any(|id| id.pid == unread.id.pid)), "a process was not read");
                    }
                    other => prop_assert!(false, "proved with {:?}", other),
                }
            }
            for member in finding.tree.iter().map(|id| facts.same(id).unwrap()) {
                prop_assert_eq!(member.uid, USER);
                prop_assert!(member.stdin.kind != DescriptorKind::Unread && member.stdin.kind != DescriptorKind::Tty);
                if let OtherEnd::Held { by, .. } = &member.stdin.other_end {
                    prop_assert!(by.iter().all(|holder| disowned.contains(&holder.pid)), "a member is held");
                }
            }
        }
    }

    /// The same machine in another order gets the same verdicts.
    #[test]
    fn order_does_not_matter((facts, policy) in any_machine()) {
        let policy_of_other = JudgePolicy {
            gone_for: policy.gone_for.iter().map(|((pid, start), span)| ((100 - pid, *start), *span)).collect(),
            ..policy.clone()
        };
        let number = |pid: i32| if pid <= 1 { pid } else { 100 - pid };
        let mut found = verdicts(&facts, &knowledge(), &policy);
        let mut other: Vec<(i32, Verdict)> = verdicts(&renumbered(&facts), &knowledge(), &policy_of_other)
            .into_iter().map(|(pid, verdict)| (number(pid), verdict)).collect();
        found.sort_unstable();
        other.sort_unstable();
        prop_assert_eq!(found, other);
    }

    /// One more living holder never adds an orphan, and the server that it holds is none.
    #[test]
    fn a_living_holder_never_adds_an_orphan((facts, policy) in any_machine(), at in 0..MOST as usize - 1, stdin in any::<bool>()) {
        let before = proved_roots(&facts, &policy);
        let mut more = facts.clone();
        let saviour = Process { uid: USER, ..process(60, 1, "editor") };
        let saved = &mut more.processes[at + 1];
        let saved_pid = saved.id.pid;
        let channel = if stdin { &mut saved.stdin } else { &mut saved.stdout };
        match &mut channel.other_end {
            OtherEnd::Held { by, .. } => by.push(id(60)),
            OtherEnd::Gone => channel.other_end = held(&[60]),
            OtherEnd::NotVisible(_) | OtherEnd::None => return Ok(()),
        }
        more.processes.push(saviour);
        let findings = judge(&more, &knowledge(), &policy);
        let after: Vec<i32> = proved(&findings).iter().map(|finding| finding.root.pid).collect();
        prop_assert!(after.iter().all(|pid| before.contains(pid)), "{:?} after {:?}", after, before);
        prop_assert!(!after.contains(&saved_pid));
        if stdin {
            prop_assert!(!proved(&findings).iter().any(|finding| finding.tree.iter().any(|id| id.pid == saved_pid)));
        }
    }

    /// A process that becomes unreadable never adds an orphan.
    #[test]
    fn an_unreadable_process_never_adds_an_orphan((facts, policy) in any_machine(), at in 0..MOST as usize - 1) {
        let before = proved_roots(&facts, &policy);
        let mut blind = facts.clone();
        let process = &mut blind.processes[at + 1];
        let pid = process.id.pid;
        for channel in [&mut process.stdin, &mut process.stdout] {
            *channel = Channel { kind: DescriptorKind::Unread, other_end: OtherEnd::NotVisible(UnreadReason::NotPermitted) };
        }
        let findings = judge(&blind, &knowledge(), &policy);
        let after = proved(&findings);
        prop_assert!(after.iter().all(|finding| before.contains(&finding.root.pid)));
        prop_assert!(!after.iter().any(|finding| finding.tree.iter().any(|id| id.pid == pid)));
    }
}
