//! A holder that cannot be seen never counts as no holder: it makes an orphan likely at most.

use std::collections::BTreeMap;
use std::fs::File;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testkit::leash::Answer;
use testkit::or_skip;
use testkit::user::{User, Who};
use testkit::wait::{self, LIMIT};

use super::hosts::{self, DETACHED, Host, server, server_with};
use super::zoo::{Zoo, living};

/// The verdicts on the servers in a census, by the first process of each.
fn verdicts(plan: &Answer, zoo: &Zoo) -> BTreeMap<i64, String> {
    let ours: Vec<i64> = living(&zoo.doomed).iter().chain(&living(&zoo.safe)).map(|(pid, _)| i64::from(*pid)).collect();
    let one = |one: &Value| {
        let (pid, verdict) = (&one["finding"]["root"]["pid"], &one["finding"]["verdict"]);
        Some((pid.as_i64()?, verdict.as_str()?.to_owned()))
    };
    let plan = plan.json();
    let all = plan["plan"].as_array().into_iter().flatten().filter_map(one);
    all.filter(|(pid, _)| ours.contains(pid)).collect()
}

fn is(verdicts: &BTreeMap<i64, String>, expected: &[&str]) -> bool {
    let mut found: Vec<&str> = verdicts.values().map(String::as_str).collect();
    found.sort_unstable();
    found == expected
}

/// Scans until the verdicts are as expected: the kernel needs a moment to give a process to another parent.
fn wait_for(zoo: &Zoo, expected: &[&str], look: impl Fn() -> Answer) {
    let mut last = look();
    let found = wait::within(LIMIT, || {
        last = look();
        is(&verdicts(&last, zoo), expected).then_some(())
    });
    assert!(found.is_some(), "not {expected:?}: {last:?}");
}

/// A zoo, if this user may start servers as another user.
fn zoo() -> Result<Zoo, String> {
    User::find(Who::Root)?;
    Zoo::open(Who::User)
}

/// Becomes the user with this uid, and executes the program.
const AS_USER: &str = "import os, sys
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
os.execvp(sys.argv[2], sys.argv[2:])";

fn as_user(zoo: &Zoo, words: &[String]) -> Vec<String> {
    let uid = zoo.scene.user().uid().to_string();
    let first = ["/usr/bin/python3", "-c", AS_USER, &uid].map(str::to_owned);
    first.into_iter().chain(words.iter().cloned()).collect()
}

/// A host of root without output.
fn roots(program: &str) -> Command {
    let mut command = Command::new(program);
    command.stderr(Stdio::null());
    command
}

/// `leash` as root, with the user's configuration.
fn as_root(zoo: &Zoo, mut command: Command, words: &[&str]) -> Answer {
    command.args(["reap", "--grace", "200ms", "--json"]).args(words);
    command.env("HOME", zoo.home()).env("LEASH_RUNTIME_DIR", zoo.home().join("root"));
    command.env("XDG_STATE_HOME", zoo.home().join("root"));
    command.output().expect("cannot start leash").into()
}

/// Root started a server as the user, and has its other ends: the user cannot see that root holds it.
#[test]
fn a_server_that_root_holds_is_not_proved() {
    let mut zoo = or_skip!(zoo());
    let words = zoo.declared(true, "stubborn", 1);
    let left = ["sh", "-c", DETACHED[0], "sh"].map(str::to_owned).into_iter().chain(words.clone()).collect::<Vec<_>>();
    let servers = [server(&as_user(&zoo, &words)), server(&as_user(&zoo, &left))];
    let hosts = [hosts::python(roots("/usr/bin/python3"), &servers), hosts::node(roots("/usr/bin/node"), &servers)];
    zoo.others.extend(hosts.map(Host::start));
    zoo.expect(true, 4);
    zoo.begin();
    let held = living(&zoo.doomed);
    // Those that were reparented to process 1 look like orphans, and their holders cannot be seen.
    wait_for(&zoo, &["orphan_likely"; 2], || zoo.reap(&[]));
    let answer = zoo.reap(&["--yes"]);
    assert_eq!(living(&zoo.doomed), held, "root holds them: {answer:?}");

    // The kernel answers every user about sockets. A user may not ask about a pipe of root, so that verdict stays
    // likely.
    zoo.others.clear();
    wait_for(&zoo, &["orphan_likely", "orphan_likely", "orphan_proved", "orphan_proved"], || zoo.reap(&[]));
    let answer = zoo.reap(&["--yes"]);
    assert_eq!((answer.code, living(&zoo.doomed).len()), (0, 2), "{answer:?}");
    let answer = zoo.reap_named(&zoo.doomed, &["--yes"]);
    zoo.doomed.wait_gone(LIMIT).unwrap_or_else(|left| panic!("{left}\n{answer:?}"));
}

/// It has inherited the other end of its own stdin, so the kernel cannot say that no process has it.
#[test]
fn server_that_holds_its_own_stdin_is_proved_only_with_full_view() {
    let mut zoo = or_skip!(zoo());
    let words = zoo.declared(true, "stubborn", 1);
    zoo.hosts.push(Host::start(zoo.python(&[server_with(&words, json!({ "keeps_own": true }))])));
    zoo.expect(true, 1);
    zoo.begin();
    let alone = living(&zoo.doomed);
    let found = verdicts(&zoo.reap(&[]), &zoo);
    assert!(is(&found, &["orphan_likely"]), "root may hold it: {found:?}");
    let answer = zoo.reap(&["--yes"]);
    assert_eq!(living(&zoo.doomed), alone, "{answer:?}");
    // In a container root does not see all processes either.
    let is_whole = std::fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name.ends_with("pid:[4026531836]"));
    let expected = if is_whole { "orphan_proved" } else { "orphan_likely" };
    let answer = as_root(&zoo, Command::new(testkit::leash::leash()), &[]);
    assert!(is(&verdicts(&answer, &zoo), &[expected]), "{answer:?}");
}

/// It holds its own stdin, root holds it as well, and the user's /proc does not show any process of root.
#[test]
fn server_held_by_a_hidden_process_is_not_proved() {
    let mut zoo = or_skip!(zoo());
    let words = zoo.declared(true, "stubborn", 1);
    zoo.hosts.push(Host::start(zoo.python(&[server_with(&words, json!({ "keeps_own": true }))])));
    zoo.expect(true, 1);
    zoo.begin();
    let held = living(&zoo.doomed);
    let pid = held.first().expect("it lives").0;
    // The user owns the pipe, so the user may ask the kernel, which says that a process has the other end.
    let stdin = File::options().write(true).open(format!("/proc/{pid}/fd/0")).expect("root may open it");
    let leash = as_user(&zoo, &[zoo.scene.leash_path().display().to_string()]);
    let look = |words: &[&str]| {
        let mut command = Command::new(testkit::leash::zoo());
        command.args(["ns", "--hidepid", "--"]).args(&leash).args(["reap", "--json"]).args(words);
        command.current_dir(zoo.home());
        command.env("HOME", zoo.home()).env("LEASH_RUNTIME_DIR", zoo.scene.runtime_dir());
        command.env("XDG_STATE_HOME", zoo.home().join("state"));
        Answer::from(command.output().expect("cannot start zoo ns"))
    };
    wait_for(&zoo, &["orphan_likely"], || look(&[]));
    let answer = look(&["--yes"]);
    assert_eq!(living(&zoo.doomed), held, "root holds it: {answer:?}");
    drop(stdin);
}

/// Without an answer about sockets, orphans of Node hosts cannot be proved, but those of Python hosts can.
#[test]
fn without_an_answer_about_sockets_nothing_is_proved_by_them() {
    let mut zoo = or_skip!(zoo());
    let (pipes, sockets) = (zoo.declared(true, "stubborn", 1), zoo.declared(false, "stubborn", 1));
    let node = hosts::node(zoo.command("/usr/bin/node"), &[server(&sockets)]);
    zoo.hosts.extend([zoo.python(&[server(&pipes)]), node].map(Host::start));
    zoo.expect(true, 1);
    zoo.expect(false, 1);
    let stay = zoo.begin();
    let blind = || {
        let mut command = Command::new(testkit::leash::zoo());
        command.args(["ns", "--net", "--"]).arg(testkit::leash::leash());
        command
    };
    let of = |plan: &Answer, pid: i32| verdicts(plan, &zoo).get(&i64::from(pid)).cloned();
    let pid = |census| living(census).first().expect("it lives").0;
    let (pipe, socket) = (pid(&zoo.doomed), pid(&zoo.safe));
    let expected = [Some("orphan_proved".to_owned()), Some("orphan_likely".to_owned())];
    let plan = wait::until("both to be on their own", || {
        let plan = as_root(&zoo, blind(), &[]);
        (of(&plan, socket).is_some() && of(&plan, pipe) == expected[0]).then_some(plan)
    });
    assert_eq!([of(&plan, pipe), of(&plan, socket)], expected, "{plan:?}");
    assert_eq!(living(&zoo.safe), stay);
    // Where the kernel answers, both are proved.
    let plan = zoo.reap(&[]);
    assert_eq!([of(&plan, pipe), of(&plan, socket)], [expected[0].clone(), expected[0].clone()], "{plan:?}");
}
