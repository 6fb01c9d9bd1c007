use super::Verdict::{Live, OrphanLikely, OrphanProved, StaleHost, Unknown};
use super::*;
use OtherEnd::{Gone, NotVisible};

/// Every pair of ends, for a server whose parent is process 1 and for one whose parent lives.
#[test]
fn both_ends_decide() {
    let unseen = || NotVisible(UnreadReason::Unseen);
    let partly = || OtherEnd::Held { by: vec![id(10)], all: false };
    // stdin, stdout, verdict with process 1 as parent, verdict below a living shell that is no host.
    let cells = [
        (Gone, Gone, OrphanProved, OrphanLikely),
        (Gone, held(&[5]), Live, Live),
        (held(&[5]), Gone, Live, Live),
        (held(&[5]), held(&[5]), Live, Live),
        (Gone, unseen(), OrphanLikely, OrphanLikely),
        (unseen(), Gone, OrphanLikely, Unknown),
        (unseen(), unseen(), OrphanLikely, Unknown),
        (unseen(), held(&[5]), Live, Live),
        (held(&[5]), unseen(), Live, Live),
        // Held by the server itself only; and the same, but not all processes were searched.
        (held(&[10]), held(&[10]), OrphanProved, OrphanLikely),
        (held(&[10]), Gone, OrphanProved, OrphanLikely),
        (partly(), Gone, OrphanLikely, Unknown),
        (Gone, partly(), OrphanLikely, OrphanLikely),
        // Held by the server itself and by another process.
        (held(&[10, 5]), Gone, Live, Live),
        // A holder that is not among the processes may be any process.
        (held(&[77]), Gone, Live, Live),
    ];
    for (stdin, stdout, left, below) in cells {
        let note = format!("{stdin:?} {stdout:?}");
        for (parent, expected) in [(1, left), (5, below)] {
            let facts = machine(vec![process(5, 1, "bash -l"), server(10, parent, stdin.clone(), stdout.clone())]);
            let found = verdicts(&facts, &knowledge(), &JudgePolicy::default());
            assert_eq!(found, [(10, expected)], "{note}, child of {parent}");
        }
    }
}

#[test]
fn a_server_without_pipes_is_never_proved() {
    let kinds = [
        DescriptorKind::Null,
        DescriptorKind::File,
        DescriptorKind::Closed,
        DescriptorKind::Unread,
        DescriptorKind::NotAsked,
    ];
    for kind in kinds {
        let mut stdin = server(10, 1, Gone, Gone);
        stdin.stdin = Channel { kind, other_end: OtherEnd::None };
        let expected =
            if matches!(kind, DescriptorKind::Unread | DescriptorKind::NotAsked) { OrphanLikely } else { Unknown };
        check(vec![stdin], &[(10, expected)]);
        let mut stdout = server(10, 1, Gone, Gone);
        stdout.stdout = Channel { kind, other_end: OtherEnd::None };
        check(vec![stdout], &[(10, OrphanLikely)]);
    }
    let mut at_terminal = server(10, 1, Gone, Gone);
    at_terminal.stdin = Channel { kind: DescriptorKind::Tty, other_end: OtherEnd::None };
    check(vec![at_terminal.clone()], &[(10, Live)]);
    at_terminal.terminal_gone = true;
    check(vec![at_terminal], &[(10, OrphanLikely)]);
}

#[test]
fn only_servers_are_judged() {
    let mut decoy = server(10, 1, Gone, Gone);
    decoy.argv = vec!["node".to_owned(), "/srv/my-mcp-server/index.js".to_owned()];
    let mut own = server(11, 1, Gone, Gone);
    own.argv = vec!["npm".to_owned(), "run".to_owned(), "dev".to_owned()];
    own.marks.insert("CLAUDECODE".to_owned(), "1".to_owned());
    check(vec![decoy, own], &[]);
}

/// host -> gateway -> server, and the host is gone: the kernel proves the gateway an orphan, and the gateway is the
/// server's only holder.
#[test]
fn a_server_held_by_an_orphan_is_an_orphan() {
    let gateway = server(10, 1, Gone, Gone);
    let behind = server(20, 1, held(&[10]), held(&[10]));
    let third = server(30, 1, held(&[20]), held(&[20]));
    check(vec![gateway, behind, third], &[(10, OrphanProved), (20, OrphanProved), (30, OrphanProved)]);
    let gateway = server(10, 1, held(&[5]), Gone);
    let behind = server(20, 1, held(&[10]), held(&[10]));
    check(vec![process(5, 1, "host"), gateway, behind], &[(10, Live), (20, Live)]);
}

#[test]
fn two_servers_that_hold_each_other_are_orphans() {
    let a = server(10, 1, held(&[20]), held(&[20]));
    let b = server(20, 1, held(&[10]), held(&[10]));
    check(vec![a.clone(), b.clone()], &[(10, OrphanProved), (20, OrphanProved)]);
    let held_from_outside = server(20, 1, held(&[10, 5]), held(&[10]));
    check(vec![process(5, 1, "host"), a, held_from_outside], &[(10, Live), (20, Live)]);
}

/// A likely orphan is no proof for the servers that it holds.
#[test]
fn a_likely_orphan_proves_nothing_for_others() {
    let gateway = server(10, 1, Gone, NotVisible(UnreadReason::Unseen));
    let behind = server(20, 1, held(&[10]), held(&[10]));
    check(vec![gateway, behind], &[(10, OrphanLikely), (20, OrphanLikely)]);
}

#[test]
fn a_chain_of_wrappers_is_one_server() {
    let mut npx = server(10, 1, Gone, Gone);
    npx.argv = vec!["npm exec srv".to_owned()];
    let shell = Process { argv: vec!["sh".to_owned(), "-c".to_owned(), "srv".to_owned()], ..npx.clone() };
    let shell = Process { id: id(11), ppid: 10, ..shell };
    let node = Process { id: id(12), ppid: 11, argv: vec!["srv".to_owned()], ..npx.clone() };
    let helper = process(13, 12, "chrome --headless");
    let facts = machine(vec![npx, shell, node, helper]);
    let findings = judge(&facts, &knowledge(), &JudgePolicy::default());
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].root, id(10));
    assert_eq!(findings[0].tree, [id(10), id(11), id(12), id(13)]);
    assert_eq!(findings[0].verdict, OrphanProved);
}

#[test]
fn a_process_that_left_with_the_channels_belongs_to_the_tree() {
    let root = server(10, 1, Gone, Gone);
    let daemon = Process { id: id(20), session: 20, ..root.clone() };
    let daemon = Process { argv: vec!["watcher".to_owned()], ..daemon };
    let in_session = Process { session: 10, ..process(21, 1, "helper") };
    let other_user = Process { id: id(22), session: 22, uid: 0, argv: vec!["watcher".to_owned()], ..root.clone() };
    let only_stdin = Process {
        id: id(23),
        argv: vec!["x".to_owned()],
        stdout: process(9, 1, "x").stdout,
        session: 23,
        ..root.clone()
    };
    let facts = machine(vec![root, daemon, in_session, other_user, only_stdin]);
    let findings = judge(&facts, &knowledge(), &JudgePolicy::default());
    let mut tree = findings[0].tree.clone();
    tree.sort_by_key(|id| id.pid);
    assert_eq!(tree, [id(10), id(20), id(21)]);
}

#[test]
fn a_held_member_protects_the_tree() {
    let root = || server(10, 1, Gone, Gone);
    let below = |stdin: OtherEnd| Process { argv: vec!["x".to_owned()], ..server(11, 10, stdin, Gone) };
    check(vec![root(), below(held(&[10]))], &[(10, OrphanProved)]);
    check(vec![root(), process(5, 1, "x"), below(held(&[5]))], &[(10, OrphanLikely)]);
    check(vec![root(), below(NotVisible(UnreadReason::Unseen))], &[(10, OrphanLikely)]);
    let mut at_terminal = process(11, 10, "bash");
    at_terminal.stdin.kind = DescriptorKind::Tty;
    check(vec![root(), at_terminal.clone()], &[(10, OrphanLikely)]);
    at_terminal.terminal_gone = true;
    check(vec![root(), at_terminal], &[(10, OrphanProved)]);
    let unread =
        Process { stdin: Channel { kind: DescriptorKind::Unread, other_end: OtherEnd::None }, ..process(11, 10, "x") };
    check(vec![root(), unread], &[(10, OrphanLikely)]);
}

#[test]
fn only_root_proves_orphans_of_another_user() {
    let other = || Process { uid: 2000, ..server(10, 1, Gone, Gone) };
    check(vec![other()], &[(10, Unknown)]);
    let facts = Facts { uid: 0, ..machine(vec![other()]) };
    assert_eq!(verdicts(&facts, &knowledge(), &JudgePolicy::default()), [(10, OrphanProved)]);
    check(vec![server(10, 1, Gone, Gone), Process { uid: 0, ..process(11, 10, "sudo") }], &[(10, OrphanLikely)]);
}

/// A process that could not be read counts as a holder if it may have inherited an end.
#[test]
fn an_unread_process_counts_as_a_holder() {
    let unread =
        |start: u64| UnreadProcess { id: Identity { pid: 99, start, inode: None }, why: UnreadReason::NotPermitted };
    let check = |stdin: OtherEnd, start: u64, expected: Verdict| {
        let mut facts =
            machine(vec![Process { id: Identity { start: 50_000, ..id(10) }, ..server(10, 1, stdin, Gone) }]);
        facts.unread.push(unread(start));
        let OtherEnd::Held { by, .. } = &mut facts.processes[1].stdin.other_end else {
            assert_eq!(verdicts(&facts, &knowledge(), &JudgePolicy::default()), [(10, expected)]);
            return;
        };
        by[0].start = 50_000;
        assert_eq!(verdicts(&facts, &knowledge(), &JudgePolicy::default()), [(10, expected)], "{start}");
    };
    check(Gone, 60_000, OrphanProved);
    check(held(&[10]), 60_000, OrphanLikely);
    check(held(&[10]), 50_000, OrphanLikely);
    // A process that is 30 s older than the server can't have its channels.
    check(held(&[10]), 46_999, OrphanProved);
    check(held(&[10]), 47_000, OrphanLikely);
}

#[test]
fn a_parent_gets_time_to_end_its_server() {
    let facts = machine(vec![process(5, 1, "host"), server(10, 5, Gone, Gone)]);
    let policy = |seconds: u64| JudgePolicy {
        gone_for: HashMap::from([((10, 10), Duration::from_secs(seconds))]),
        ..JudgePolicy::default()
    };
    assert_eq!(verdicts(&facts, &knowledge(), &policy(9)), [(10, OrphanLikely)]);
    assert_eq!(verdicts(&facts, &knowledge(), &policy(10)), [(10, OrphanProved)]);
    let mut other = policy(100);
    other.gone_for = HashMap::from([((10, 11), Duration::from_secs(100))]);
    assert_eq!(verdicts(&facts, &knowledge(), &other), [(10, OrphanLikely)]);
}

#[test]
fn a_leashed_server_is_never_proved() {
    let leashed = |attended| LeashedRun {
        session: "s".to_owned(),
        name: "srv".to_owned(),
        attended,
        attendants: vec![id(8), id(9)],
        processes: vec![id(10)],
        owners: Vec::new(),
        idle_stop: None,
    };
    let facts = machine(vec![process(8, 1, "leash run"), process(9, 8, "keeper"), server(10, 9, Gone, Gone)]);
    for (attended, expected) in [(true, Live), (false, OrphanLikely)] {
        let knowledge = Knowledge { leashed: vec![leashed(attended)], ..knowledge() };
        assert_eq!(verdicts(&facts, &knowledge, &JudgePolicy::default()), [(10, expected)]);
    }
    let mut marked = server(10, 1, Gone, Gone);
    marked.marks.insert(spec::MARK.to_owned(), "of another ledger".to_owned());
    check(vec![marked], &[(10, OrphanLikely)]);
}

#[test]
fn a_remnant_is_judged_like_a_server() {
    let remnant = |stdin: OtherEnd| {
        let mut process = server(10, 1, stdin, Gone);
        process.argv = vec!["chrome".to_owned()];
        process.marks.insert(spec::MARK.to_owned(), "over".to_owned());
        process
    };
    let knowledge = Knowledge { ended: vec!["over".to_owned()], ..knowledge() };
    for (stdin, expected) in [(Gone, OrphanProved), (held(&[5]), Live)] {
        let facts = machine(vec![process(5, 1, "x"), remnant(stdin)]);
        let findings = judge(&facts, &knowledge, &JudgePolicy::default());
        assert_eq!((findings[0].role, findings[0].verdict), (TreeRole::Remnant, expected));
    }
    let mut silent = remnant(Gone);
    silent.stdin = process(1, 0, "x").stdin;
    let facts = machine(vec![silent]);
    assert_eq!(verdicts(&facts, &knowledge, &JudgePolicy::default()), [(10, Unknown)]);
    // A session that has no receipt may still run.
    check(vec![remnant(Gone)], &[]);
}

#[test]
fn a_host_without_a_terminal_is_stale_and_still_a_host() {
    let mut host = process(5, 1, "claude");
    host.terminal_gone = true;
    let below = server(10, 5, held(&[5]), held(&[5]));
    check(vec![host.clone(), below.clone()], &[(5, StaleHost), (10, Live)]);
    host.terminal_gone = false;
    check(vec![host.clone(), below.clone()], &[(10, Live)]);
    host.swap = SWAPPED + 1;
    host.resident = 1024;
    let facts = Facts { now: 100 * 3600 * 25, ..machine(vec![host, below]) };
    assert_eq!(verdicts(&facts, &knowledge(), &JudgePolicy::default()), [(5, StaleHost), (10, Live)]);
}

#[test]
fn the_client_is_the_nearest_host_above() {
    let facts = machine(vec![process(5, 1, "claude"), server(10, 5, held(&[5]), held(&[5]))]);
    let findings = judge(&facts, &knowledge(), &JudgePolicy::default());
    assert_eq!(findings[0].client.as_deref(), Some("Claude Code"));
    assert_eq!(findings[0].server.as_deref(), Some("srv"));
    assert!(findings[0].evidence.contains(&Evidence::HeldBy {
        stream: StdioStream::Stdin,
        by: id(5),
        name: "Claude Code".to_owned()
    }));
}

/// A younger process with the parent's PID is not the parent.
#[test]
fn a_younger_process_is_not_the_parent() {
    let mut young = process(5, 1, "claude");
    young.id.start = 5_000;
    let facts = machine(vec![young, server(10, 5, Gone, Gone)]);
    let findings = judge(&facts, &knowledge(), &JudgePolicy::default());
    assert_eq!(findings[0].client, None);
}

/// A server that speaks HTTP is in use while a client is connected to it.
#[test]
fn a_server_with_a_client_is_not_proved() {
    let served = |clients: &[i32]| AcceptedConnection { by: 11, port: 8080, clients: clients.to_vec() };
    let below = |pid, ppid| process(pid, ppid, "node http.js");
    let cells = [
        (vec![], OrphanProved),
        (vec![served(&[])], OrphanLikely),
        // A client in its own tree, one in an orphan's tree, and one in a living server's tree.
        (vec![served(&[10])], OrphanProved),
        (vec![served(&[20])], OrphanProved),
        (vec![served(&[30])], OrphanLikely),
        (vec![served(&[10]), served(&[10, 30])], OrphanLikely),
    ];
    for (served, expected) in cells {
        let host = process(5, 1, "python host.py");
        let servers = [server(10, 1, Gone, Gone), server(20, 1, Gone, Gone), server(30, 5, held(&[5]), held(&[5]))];
        let processes = servers.into_iter().chain([host, below(11, 10)]).collect();
        let facts = Facts { served: served.clone(), ..machine(processes) };
        let found = verdicts(&facts, &knowledge(), &JudgePolicy::default());
        assert_eq!(found, [(10, expected), (20, OrphanProved), (30, Live)], "{served:?}");
    }
}

/// Ends that only its own tree holds may also be held by a process that can't be seen. Closed ends can't.
#[test]
fn with_hidden_processes_only_closed_ends_prove_an_orphan() {
    for (stdin, expected) in [(Gone, OrphanProved), (held(&[10]), OrphanLikely)] {
        let facts = Facts { whole: false, ..machine(vec![server(10, 1, stdin, Gone)]) };
        let findings = judge(&facts, &knowledge(), &JudgePolicy::default());
        assert_eq!(findings[0].verdict, expected);
        let hidden = findings[0].evidence.contains(&Evidence::OthersHidden);
        assert_eq!(hidden, expected == OrphanLikely, "{findings:?}");
    }
}

/// `docker exec`: the parent and the holder of the ends are outside of the PID namespace.
#[test]
fn a_parent_outside_of_the_namespace_is_no_reaper() {
    let unseen = || NotVisible(UnreadReason::Unseen);
    check(vec![server(10, 0, unseen(), unseen())], &[(10, Unknown)]);
    check(vec![server(10, 0, Gone, Gone)], &[(10, OrphanLikely)]);
}

#[test]
fn a_process_spared_on_purpose_is_no_remnant() {
    let mut spared = Process { argv: vec!["browser".to_owned()], ..server(10, 1, Gone, Gone) };
    spared.marks.insert(spec::MARK.to_owned(), "over".to_owned());
    let mut knowledge = Knowledge { ended: vec!["over".to_owned()], ..knowledge() };
    let facts = machine(vec![spared]);
    assert_eq!(verdicts(&facts, &knowledge, &JudgePolicy::default()), [(10, OrphanProved)]);
    knowledge.spared.push(("over".to_owned(), 10));
    assert_eq!(verdicts(&facts, &knowledge, &JudgePolicy::default()), []);
}

/// A helper that has left a server's tree ends with the server, and the server ends with its host.
#[test]
fn the_tree_of_a_stale_host_includes_its_servers() {
    let host = Process { terminal_gone: true, ..process(5, 1, "claude") };
    let below = server(10, 5, held(&[5]), held(&[5]));
    let left = Process { id: id(20), ppid: 1, session: 20, argv: vec!["helper".to_owned()], ..below.clone() };
    let facts = machine(vec![host, below, left]);
    let findings = judge(&facts, &knowledge(), &JudgePolicy::default());
    assert_eq!(findings[0].verdict, StaleHost);
    assert_eq!(findings[0].tree, [id(5), id(10), id(20)]);
}
