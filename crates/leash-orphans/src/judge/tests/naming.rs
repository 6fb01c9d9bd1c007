//! The name of a server, its holder and its client.

use super::*;
use OtherEnd::Gone;

/// Finds the name, the client, and the holder's name and PID.
fn naming(processes: Vec<Process>, knowledge: &Knowledge) -> [Option<String>; 3] {
    let findings = judge(&machine(processes), knowledge, &JudgePolicy::default());
    let finding = findings.into_iter().find(|finding| finding.role == TreeRole::Server).expect("a server");
    let holder = finding.holder.map(|holder| format!("{} {}", holder.name(), holder.process.pid));
    [finding.server, finding.client, holder]
}

/// The same command in a client's configuration does not make that client the holder.
#[test]
fn the_holder_is_named_and_not_a_client_with_the_same_command() {
    let server = |parent| server(10, parent, held(&[5]), held(&[5]));
    let names = |name: &str, client: Option<&str>, holder: Option<&str>| {
        [Some(name.to_owned()), client.map(str::to_owned), holder.map(str::to_owned)]
    };
    let host = |line| process(5, 1, line);
    let holders = [
        ("node /opt/x/host.mjs --flag", "node host.mjs 5"),
        ("python3 -m acme.host", "python3 -m acme.host 5"),
        ("python3 -c code", "python3 5"),
        ("/usr/bin/goose-like session", "goose-like 5"),
    ];
    for (line, holder) in holders {
        assert_eq!(naming(vec![host(line), server(5)], &knowledge()), names("srv", None, Some(holder)));
        // Its parent does not matter, and neither does a client above the holder, or a mark that it inherited.
        assert_eq!(naming(vec![host(line), server(1)], &knowledge()), names("srv", None, Some(holder)));
        let below = Process { ppid: 4, ..host(line) };
        let mut marked = server(5);
        marked.marks.insert("CLAUDECODE".to_owned(), "1".to_owned());
        let all = vec![process(4, 1, "claude"), below, marked];
        assert_eq!(naming(all, &knowledge()), names("srv", None, Some(holder)));
    }
    let client = names("srv", Some("Claude Code"), Some("Claude Code 5"));
    assert_eq!(naming(vec![host("claude"), server(5)], &knowledge()), client);
    // A child of the client has copies of its descriptors.
    let copies = Process { ppid: 5, ..process(6, 5, "node worker.js") };
    let both = Process { stdin: Channel { other_end: held(&[6, 5]), ..server(5).stdin }, ..server(5) };
    assert_eq!(naming(vec![host("claude"), copies, both], &knowledge()), client);
}

#[test]
fn an_orphan_has_the_client_of_its_mark_or_none() {
    let mut orphan = server(10, 1, Gone, Gone);
    assert_eq!(naming(vec![orphan.clone()], &knowledge()), [Some("srv".to_owned()), None, None]);
    orphan.marks.insert("CLAUDECODE".to_owned(), "1".to_owned());
    let marked = [Some("srv".to_owned()), Some("Claude Code".to_owned()), None];
    assert_eq!(naming(vec![orphan], &knowledge()), marked);
}

/// Two clients have the same command under two keys.
#[test]
fn a_server_has_the_key_of_the_client_that_holds_it() {
    let mut knowledge = knowledge();
    let copy = |client: &str, name: &str| DeclaredCommand {
        client: client.to_owned(),
        name: name.to_owned(),
        ..knowledge.declared[0].clone()
    };
    knowledge.declared.extend([copy("Codex CLI", "second"), copy("Claude Code", "third")]);
    for (host, name) in [("claude", "third"), ("codex", "second"), ("goose", "srv"), ("bash -l", "srv")] {
        let processes = vec![process(5, 1, host), server(10, 5, held(&[5]), held(&[5]))];
        assert_eq!(naming(processes, &knowledge)[0].as_deref(), Some(name), "{host}");
    }
}

/// leash itself has no stdin; the server has.
#[test]
fn a_run_of_leash_is_judged_by_the_channels_of_its_server() {
    let run = |at: i32| LeashedRun {
        session: format!("s{at}"),
        name: format!("n{at}"),
        attended: true,
        attendants: vec![id(8), id(at)],
        processes: vec![id(at + 1), id(at + 3)],
        owners: Vec::new(),
        idle_stop: None,
    };
    let mut processes = vec![process(5, 1, "node host.mjs"), process(8, 5, "leash run --name=srv -- srv")];
    for at in [20, 30] {
        processes.push(process(at, 8, "leash-keeper"));
        processes.push(Process { argv: vec!["x".to_owned()], ..server(at + 1, at, held(&[5]), held(&[5])) });
        processes.push(process(at + 2, at + 1, "child"));
        processes.push(process(at + 3, at, "daemon"));
    }
    let mut knowledge = Knowledge { leashed: vec![run(20), run(30)], ..knowledge() };
    // The client's configuration has the command of leash.
    knowledge.declared[0].command = ["leash", "run", "--name=srv", "--", "srv"].map(str::to_owned).to_vec();
    let findings = judge(&machine(processes), &knowledge, &JudgePolicy::default());
    let seen: Vec<_> =
        findings.iter().map(|found| (found.root.pid, found.server.as_deref(), found.tree.len())).collect();
    assert_eq!(seen, [(21, Some("n20"), 3), (31, Some("n30"), 3)]);
    for (finding, session) in findings.iter().zip(["s20", "s30"]) {
        let held = |stream| Evidence::HeldBy { stream, by: id(5), name: "node host.mjs".to_owned() };
        let leashed = Evidence::Leashed { session: session.to_owned() };
        assert_eq!(finding.evidence, [held(StdioStream::Stdin), held(StdioStream::Stdout), leashed]);
    }
}
