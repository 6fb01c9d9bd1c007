//! Servers are found from every directory, and called by the process that really holds them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testkit::host::Manner;
use testkit::leash::{Answer, keeper};
use testkit::or_skip;
use testkit::user::{User, Who};
use testkit::wait::{self, LIMIT};

use super::hosts::{Host, PYTHON, server_with};
use super::zoo::{Zoo, living};

/// Writes a file of the scene's user.
fn put(zoo: &Zoo, path: &str, text: &str) {
    let path = zoo.home().join(path);
    fs::create_dir_all(path.parent().expect("it has one")).expect("the scene has room");
    fs::write(path, text).expect("the scene has room");
}

/// A host in a file, so that its command line is short: `python3 host.py`.
fn host(zoo: &Zoo, servers: &[Value]) -> Command {
    put(zoo, "host.py", PYTHON);
    let mut command = zoo.command("/usr/bin/python3");
    command.arg(zoo.home().join("host.py")).arg(json!({ "servers": servers }).to_string());
    command
}

fn servers(words: &[String], key: &str) -> String {
    json!({ "mcpServers": { key: { "command": words[0], "args": words[1..] } } }).to_string()
}

/// A `leash` command in a directory.
fn answer_in(zoo: &Zoo, dir: &Path, words: &[&str]) -> Answer {
    let mut command = zoo.scene.leash(words);
    command.current_dir(dir).output().expect("cannot start leash").into()
}

/// Gemini CLI has the same command in its configuration, but another program started the server.
#[test]
fn ps_and_why_name_the_process_that_holds_a_server() {
    let mut zoo = or_skip!(Zoo::open(Who::User));
    let words = zoo.tree(false, "stubborn", 1);
    put(&zoo, ".gemini/settings.json", &servers(&words, "plain"));
    zoo.others.push(Host::start(host(&zoo, &[super::hosts::server(&words)])));
    zoo.expect(false, 1);
    zoo.begin();
    let pid = living(&zoo.safe).first().expect("it is up").0;
    let host = zoo.others[0].pid();
    let ps = zoo.scene.answer(["ps"]).stdout;
    let row = ps.lines().find(|line| line.starts_with(&format!("{pid} "))).unwrap_or_else(|| panic!("{ps}"));
    assert!(row.contains("plain") && row.contains(&format!("python3 host.py ({host})")), "{ps}");
    assert!(ps.contains(&format!("{pid}: same command as `plain` in Gemini CLI\n")), "{ps}");
    let json = zoo.scene.answer(["ps", "--json"]).json();
    let of_pid = |one: &&Value| one["finding"]["root"]["pid"] == pid;
    let found = json["servers"].as_array().into_iter().flatten().find(of_pid).expect("it is listed");
    let finding = &found["finding"];
    assert_eq!((&finding["server"], &finding["client"]), (&json!("plain"), &Value::Null), "{finding:#}");
    let holder = (&finding["holder"]["process"]["pid"], &finding["holder"]["command"]);
    assert_eq!(holder, (&json!(host), &json!("python3 host.py")), "{finding:#}");
    let why = zoo.scene.answer(["why", &pid.to_string()]).stdout;
    let first = format!("plain (pid {pid}) of python3 host.py (pid {host}): live, ");
    assert!(why.starts_with(&first), "{why}");
    assert!(why.contains(&format!("\n- python3 host.py (pid {host}) holds the other end of its stdin\n")), "{why}");
    assert!(why.contains("it has the same command as `plain` in Gemini CLI"), "{why}");
}

/// A project's server, seen from its directory, from the root and from the home directory.
#[test]
fn servers_of_a_project_are_seen_from_every_directory() {
    // Other tests of the same user would see and end the orphan, too.
    or_skip!(User::find(Who::Root));
    let mut zoo = or_skip!(Zoo::open(Who::User));
    put(&zoo, "work/project/.git/HEAD", "");
    put(&zoo, "work/project/deep/server.sh", "\"$ZOO\" tree stubborn --census \"$CENSUS\"\nexit\n");
    // The client starts it in the project, and works itself in a directory below.
    let words = ["sh", "deep/server.sh"].map(str::to_owned);
    put(&zoo, "work/project/.mcp.json", &servers(&words, "of-project"));
    // A directory above the repository is not part of the project.
    let elsewhere = servers(&zoo.tree(true, "stubborn", 1), "without-a-client");
    put(&zoo, "work/.mcp.json", &elsewhere);
    let (project, home) = (zoo.home().join("work/project"), zoo.home());
    let mut command = host(&zoo, &[server_with(&words, json!({ "cwd": project }))]);
    command.current_dir(project.join("deep")).env("CENSUS", zoo.doomed.path()).env("ZOO", zoo.scene.zoo_path());
    zoo.hosts.push(Host::start(command));
    zoo.expect(true, 1);
    // A process that works in a directory that leash can't read does no harm.
    put(&zoo, "closed/.mcp.json", "{}");
    let closed = home.join("closed");
    let mut sleeper = zoo.command("/usr/bin/python3");
    sleeper.args(["-c", "import sys; print('up', flush=True); sys.stdin.read()"]).current_dir(&closed);
    zoo.others.push(Host::start(sleeper));
    zoo.begin();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).expect("it is ours");
    let [from_project, from_root, from_home] = [project.as_path(), Path::new("/"), &home].map(|dir| {
        wait::until("the server to be an orphan", || {
            let seen = answer_in(&zoo, dir, &["ps", "--json"]);
            assert_eq!((seen.code, seen.stderr.as_str()), (0, ""), "{seen:?}");
            let one = |one: &Value| {
                let finding = &one["finding"];
                (finding["root"]["pid"].clone(), finding["server"].clone(), finding["verdict"].clone())
            };
            let seen: Vec<_> = seen.json()["servers"].as_array().into_iter().flatten().map(one).collect();
            seen.iter().any(|(_, name, verdict)| name == "of-project" && verdict == "orphan_proved").then_some(seen)
        })
    });
    assert_eq!((&from_project, &from_home), (&from_root, &from_root));
    let planned = answer_in(&zoo, Path::new("/"), &["reap", "--json"]);
    assert!(planned.stdout.contains("of-project"), "{planned:?}");
    let quick = ["watch", "--once", "--min-age", "0", "--settle", "200ms", "--grace", "200ms"];
    let watched = answer_in(&zoo, Path::new("/"), &quick);
    assert_eq!(watched.code, 0, "{watched:?}");
    zoo.doomed.wait_gone(LIMIT).unwrap_or_else(|left| panic!("{left}\n{watched:?}"));
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).expect("it is ours");
}

/// leash itself has no stdin: `why` speaks of the server's.
#[test]
fn why_speaks_of_the_server_of_a_run() {
    let mut zoo = or_skip!(Zoo::open(Who::User));
    let tree: Vec<_> = zoo.tree(false, "stubborn", 2).into_iter().map(Into::into).collect();
    let words = zoo.scene.run_words(["--grace", "100ms", "--name", "notes"], &tree);
    let mut host = zoo.scene.host(&Manner::default(), None, &words);
    zoo.safe.wait_all_ready(1, LIMIT).expect("the server did not come up");
    let session = wait::until("the server in the ledger", || {
        let all = zoo.scene.answer(["ps", "--json", "--leashed"]).json();
        Some(all["sessions"][0].clone()).filter(|session| session["leader"]["pid"].is_number())
    });
    let (server, run) = (&session["leader"]["pid"], session["run"].as_str().expect("an id"));
    let leash = host.server();
    let (supervisor, keeper) = (leash.pid().as_raw_nonzero().get(), keeper(leash.pid()).pid().as_raw_nonzero().get());
    let held = format!("(pid {}) holds the other end of its stdin\n", host.pid().as_raw_nonzero());
    for word in [server.to_string(), run.to_owned(), run[..8].to_owned(), supervisor.to_string(), keeper.to_string()] {
        let why = zoo.scene.answer(["why", &word]);
        assert_eq!(why.code, 0, "{why:?}");
        assert!(why.stdout.starts_with(&format!("notes (pid {server}) of zoo")), "{word}: {why:?}");
        assert!(why.stdout.contains(&held) && !why.stdout.contains("null device"), "{word}: {why:?}");
        assert!(why.stdout.contains("the other end of its stdin\nWhat ends it: it ends with its owner"), "{why:?}");
        let is_leash = why.stdout.contains(&format!("Process {word} (")) && why.stdout.contains(") is leash, which");
        assert_eq!(is_leash, [supervisor, keeper].iter().any(|pid| pid.to_string() == word), "{word}: {why:?}");
    }
    let unknown = zoo.scene.answer(["why", "nosuch"]);
    assert_eq!((unknown.code, unknown.stderr.contains("no session `nosuch` is alive")), (1, true), "{unknown:?}");
    host.close_stdin();
    host.wait_ended(LIMIT).expect("leash ends with its server");
}
