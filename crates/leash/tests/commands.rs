//! The commands around `run`, each on real sessions: `ps`, `end`, `history`, `doctor`, `demo`, and the options `--spare`,
//! `--label`, `--memory` and `--pids`.

use std::ffi::OsString;
use std::process::Stdio;

use rustix::process::Pid;
use serde_json::{Value, json};
use testkit::host::Manner;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::LIMIT;
use testkit::{note, or_skip};

fn shell(script: &str) -> Vec<OsString> {
    ["sh", "-c", script].map(OsString::from).to_vec()
}

fn sessions(scene: &Scene) -> Vec<Value> {
    scene.answer(["ps", "--json"]).json()["sessions"].as_array().cloned().unwrap_or_default()
}

fn receipts(scene: &Scene) -> Vec<Value> {
    scene.answer(["history", "--json"]).json()["receipts"].as_array().cloned().unwrap_or_default()
}

#[test]
fn ps_shows_living_sessions() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let options = ["--session", "job-1", "--name", "sample", "--label", "team=red", "--grace", "100ms"];
    let words = scene.run_words(options, &scene.tree("setsid", [] as [&str; 0]));
    let mut host = scene.host(&Manner::default(), None, &words);
    scene.census().wait_ready(LIMIT).expect("the tree did not come up");
    let listed = testkit::wait::until("both members in the listing", || {
        let listed = sessions(&scene);
        (listed.first()?["processes"] == 2).then_some(listed)
    });
    let session = &listed[0];
    assert_eq!((session["session"].as_str(), session["name"].as_str()), (Some("job-1"), Some("sample")));
    assert_eq!((&session["labels"]["team"], &session["attended"]), (&"red".into(), &true.into()));
    assert_eq!(session["supervisor"]["pid"], host.server().pid().as_raw_nonzero().get());
    assert!(session["memory_bytes"].as_u64() > Some(0), "{session}");

    let table = scene.answer(["ps"]).stdout;
    assert!(table.contains("job-1") && table.contains("sample") && table.contains("running"), "{table}");
    let tree = scene.answer(["ps", "--tree", "-v"]).stdout;
    assert!(tree.contains("does not cover:") && tree.contains("label: team=red"), "{tree}");
    assert_eq!(tree.matches("zoo tree setsid").count(), 3, "the command and two members: {tree}");

    // A given name must match exactly: `job-1` is not an abbreviation of `job-10`.
    assert_eq!(scene.answer(["end", "job"]).code, 1);
    let ended = scene.answer(["end", "job-1"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stdout.contains("sample [job-1]: leash end; 2 processes") && ended.stdout.contains("all gone"));
    scene.wait_gone(&[host.pid()]).expect("nothing but the host is left");
    assert_eq!(sessions(&scene), Vec::<Value>::new());
}

/// The reports of `--report-fd` for a command: everything that leash writes to the pipe until it is gone.
fn reports(scene: &Scene, command: &str) -> Vec<Value> {
    // The shell passes its stdout as descriptor 3, and gives the server another one.
    let script = format!("exec '{}' run --report-fd=3 -- {command} 3>&1 >/dev/null", scene.leash_path().display());
    let output = scene.command("sh").args(["-c", &script]).stdin(Stdio::null()).output().expect("sh starts");
    let text = String::from_utf8(output.stdout).expect("JSON is text");
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

#[test]
fn report_fd_tells_the_start_and_the_receipt() {
    let scene = or_skip!(Scene::set(Who::User));
    let said = reports(&scene, "sh -c 'test ! -e /proc/self/fd/3'");
    let [started, ended] = &said[..] else { panic!("{said:#?}") };
    assert_eq!(
        (started["started"]["name"].as_str(), ended["ended"]["holdings"][0]["fate"].as_str()),
        (Some("test"), Some("gone"))
    );
    assert_eq!(ended["ended"]["holdings"][0]["exit"], json!({"code": 0}), "the server has the descriptor");
    assert_eq!(started["started"]["pid"], ended["ended"]["holdings"][0]["leader"]["pid"]);
    assert_eq!(receipts(&scene), [ended["ended"].clone()]);

    let said = reports(&scene, "/does/not/exist");
    let [failed] = &said[..] else { panic!("{said:#?}") };
    assert_eq!(failed["failed"]["why"], json!({"kind": "not_found", "command": "/does/not/exist"}));
    assert_eq!(failed["failed"]["message"], "command `/does/not/exist` was not found");

    let closed = scene.answer(["run", "--report-fd=9", "--", "true"]);
    assert_eq!(closed.code, 2, "{closed:?}");
    assert!(closed.stderr.contains("descriptor 9 of --report-fd is not open"), "{closed:?}");
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn end_ends_all_runs_of_a_session_and_no_other() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let mut hosts = Vec::new();
    for session in ["red", "red", "blue"] {
        let words =
            scene.run_words(["--session", session, "--grace", "100ms"], &scene.tree("stubborn", [] as [&str; 0]));
        hosts.push(scene.host(&Manner::default(), None, &words));
    }
    scene.census().wait_all_ready(3, LIMIT).expect("the trees did not come up");
    let ended = scene.answer(["end", "--json", "red"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let receipts = &ended.json()["receipts"];
    assert_eq!(receipts.as_array().map(Vec::len), Some(1), "one for the session: {receipts:#}");
    assert_eq!(receipts[0]["holdings"].as_array().map(Vec::len), Some(2), "{receipts:#}");
    let left: Vec<Value> = sessions(&scene).into_iter().map(|session| session["session"].clone()).collect();
    assert_eq!(left, ["blue"]);
    assert_eq!(scene.answer(["end", "blue", "green"]).code, 1, "there is no green session");
    let hosts: Vec<Pid> = hosts.iter().map(|host| host.pid()).collect();
    scene.wait_gone(&hosts).expect("nothing but the hosts is left");
}

/// Checks that only the spared process is alive afterwards, and that it is outside of any leaf.
fn check_spare(contain: &str, who: Who) {
    let scene = or_skip!(Scene::set(who));
    or_skip!(scene.outer().ok_or("there is no outer cgroup to see who is left"));
    let script = "setsid sleep 1000 & setsid tail -f /dev/null & cat";
    let options = ["--contain", contain, "--spare", "sleep", "--grace", "100ms"];
    let words = scene.run_words(options, &shell(script));
    let mut command = scene.command(&words[0]);
    command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut leash = command.spawn().expect("cannot start leash");
    testkit::wait::until("the two helpers", || {
        let names: Vec<String> = scene.outer()?.processes().into_iter().map(|process| process.name).collect();
        (names.iter().any(|name| name == "sleep") && names.iter().any(|name| name == "tail")).then_some(())
    });
    drop(leash.stdin.take());
    leash.wait().expect("cannot wait for leash");
    let receipt = receipts(&scene).pop().expect("a receipt was written");
    let tree = &receipt["holdings"][0];
    assert_eq!((&tree["fate"], &tree["spared"][0]["name"]), (&"gone".into(), &"sleep".into()), "{receipt}");
    let spared = tree["spared"][0]["pid"].as_i64().and_then(|pid| Pid::from_raw(pid as i32)).expect("a pid");
    let outer = scene.outer().expect("the outer cgroup");
    outer.wait_only(&[spared], LIMIT).expect("only the spared one is left");
    let dirs = std::fs::read_dir(outer.dir()).expect("the outer cgroup").flatten();
    assert_eq!(dirs.filter(|entry| entry.path().is_dir()).count(), 0, "a leaf was left behind");
}

#[test]
fn spared_process_survives_in_leaf() {
    check_spare("leaf", Who::Root);
}

#[test]
fn spared_process_survives_in_reaper() {
    check_spare("reaper", Who::User);
}

/// Limits are enforced, or leash refuses and names the missing controller.
#[test]
fn caps_are_kept_or_refused() {
    let scene = or_skip!(Scene::set(Who::Root));
    for (option, value, controller) in [("--pids", "8", "pids"), ("--memory", "64M", "memory")] {
        let answer = scene.answer(["run", option, value, "--", "true"]);
        if answer.code == 0 {
            continue;
        }
        note(&format!("no {controller} controller in the outer cgroup: the refusal is tested"));
        assert_eq!(answer.code, 125, "{answer:?}");
        assert!(
            answer.stderr.contains(&format!("`{controller}` controller")) && answer.stderr.contains("hint: "),
            "{answer:?}"
        );
    }
}

#[test]
fn doctor_reports_usable_containments() {
    for who in [Who::Root, Who::User] {
        let scene = or_skip!(Scene::set(who));
        let answer = scene.answer(["doctor", "--json"]);
        assert_eq!(answer.code, 0, "{answer:?}");
        let report = answer.json();
        let works = |name: &str| {
            let all = report["containments"].as_array().cloned().unwrap_or_default();
            all.iter().any(|one| one["containment"] == name && one["works"] == true)
        };
        assert!(works("reaper") && works("group"), "{report}");
        assert_eq!(works("leaf"), scene.outer().is_some_and(|_| who == Who::Root), "{report}");
        assert_eq!(report["sound"], true);
        assert_eq!(scene.ledger(), Vec::<std::path::PathBuf>::new(), "doctor leaves nothing in the ledger");
    }
}

/// `leash doctor` leaves no file and no receipt behind, and its rows fit into 80 columns, however long the paths are.
#[test]
fn doctor_is_brief_and_leaves_nothing_behind() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let deep = scene.dir().join("state").join("long-name".repeat(9));
    scene.set_env("XDG_STATE_HOME", &deep);
    let answer = scene.answer(["doctor"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert_eq!(answer.stdout.lines().find(|line| line.chars().count() > 80), None, "{}", answer.stdout);
    assert_eq!(answer.stdout.lines().count(), 20, "one line a row: {}", answer.stdout);
    let detailed = scene.answer(["doctor", "-v"]).stdout;
    assert!(
        detailed.contains(&format!("receipts           fine  {}/leash/receipts.jsonl\n", deep.display())),
        "{detailed}"
    );
    assert!(detailed.contains("It does not cover: "), "{detailed}");
    assert_eq!(receipts(&scene), Vec::<Value>::new());
    assert!(!deep.exists(), "it made a directory");
    let left: Vec<_> = std::fs::read_dir(scene.runtime_dir()).expect("the ledger").flatten().collect();
    assert_eq!(left.iter().map(|entry| entry.file_name()).collect::<Vec<_>>(), ["sessions"]);
}

/// A directory counts as fine only if a file can be written there.
#[test]
fn doctor_writes_where_it_says_fine() {
    use std::os::unix::fs::PermissionsExt as _;
    let row = |answer: &testkit::leash::Answer, what: &str| {
        let rows = answer.json()["ground"].as_array().cloned().unwrap_or_default();
        rows.into_iter().find(|row| row["what"] == what).expect("there is such a row")
    };
    let mut scene = or_skip!(Scene::set(Who::User));
    assert_eq!(row(&scene.answer(["doctor", "--json"]), "runtime directory")["fine"], true);
    let set_mode = |mode| std::fs::set_permissions(scene.runtime_dir(), std::fs::Permissions::from_mode(mode));
    set_mode(0o500).expect("cannot set a mode");
    let answer = scene.answer(["doctor", "--json"]);
    assert_eq!((answer.code, &row(&answer, "runtime directory")["fine"]), (1, &false.into()), "{answer:?}");
    set_mode(0o700).expect("cannot set a mode");
    for state in ["/proc/state", "/etc"] {
        scene.set_env("XDG_STATE_HOME", state);
        let answer = scene.answer(["doctor", "--json"]);
        assert_eq!((answer.code, &row(&answer, "receipts")["fine"]), (1, &false.into()), "{state}: {answer:?}");
    }
}

/// `run`, `serve` and `doctor` read the budget for all of leash. Here no user manager can hold to it.
#[test]
fn budget_for_all_of_leash_is_in_a_file() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let file = scene.dir().join("leash/leash.json");
    std::fs::create_dir(file.parent().expect("a directory")).expect("cannot make a directory");
    scene.set_env("XDG_CONFIG_HOME", scene.dir().to_owned());
    let run = ["run", "--contain", "reaper", "--", "true"];
    std::fs::write(&file, r#"{"budget": {}, "run": {}}"#).expect("cannot write");
    assert_eq!(scene.answer(run).code, 0);
    std::fs::write(&file, r#"{"budget": {"memory": "4G"}}"#).expect("cannot write");
    let answer = scene.answer(run);
    let why = "not reaper: a budget of a session, or for all of leash, needs the systemd user manager";
    assert!(answer.code == 125 && answer.stderr.contains(why), "{answer:?}");
    std::fs::write(&file, "{\n\"budget\": {\"memory\": \"4X\"}}").expect("cannot write");
    let mistake = format!("{}:2:22: `memory` in `budget`: unknown unit `X`", file.display());
    for words in [&run[..], &["serve", "--port", "0", "--", "cat"]] {
        let answer = scene.answer(words);
        assert!(answer.code == 2 && answer.stderr.contains(&mistake), "{answer:?}");
    }
    let doctor = scene.answer(["doctor", "-v"]);
    assert!(doctor.code == 1 && doctor.stdout.contains(&mistake), "{doctor:?}");
}

/// The command line beats a variable, and a variable beats leash.json.
#[test]
fn run_has_defaults_from_variables_and_a_file() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let file = scene.dir().join("leash/leash.json");
    std::fs::create_dir(file.parent().expect("a directory")).expect("cannot make a directory");
    let text = r#"{"run": {"name": "of-file", "session": "of-file", "label": {"a": "file"}, "contain": "reaper"}}"#;
    std::fs::write(&file, text).expect("cannot write");
    scene.set_env("XDG_CONFIG_HOME", scene.dir().to_owned());
    let run = |scene: &Scene, words: &[&str]| {
        let answer = scene.answer(["run"].iter().chain(words));
        assert_eq!(answer.code, 0, "{answer:?}");
        let receipt = receipts(scene).pop().expect("a receipt");
        let texts = [&receipt["name"], &receipt["session"], &receipt["labels"]["a"], &receipt["containment"]];
        texts.map(|text| text.as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(run(&scene, &["true"]), ["of-file", "of-file", "file", "reaper"]);
    scene.set_env("LEASH_NAME", "of-variable");
    scene.set_env("LEASH_SESSION_ENV", "HOME_OF_SESSION");
    scene.set_env("HOME_OF_SESSION", "of-variable");
    assert_eq!(run(&scene, &["true"]), ["of-variable", "of-variable", "file", "reaper"]);
    let typed = ["--name", "typed", "--session=typed", "--label", "a=typed", "--contain", "group", "true"];
    assert_eq!(run(&scene, &typed), ["typed", "typed", "typed", "group"]);

    let shown = scene.answer(["doctor", "-v"]).stdout;
    for line in [
        "--name         of-variable      LEASH_NAME".to_owned(),
        "--session-env  HOME_OF_SESSION  LEASH_SESSION_ENV".to_owned(),
        format!("--label        a=file           `label` in {}:1", file.display()),
    ] {
        assert!(shown.contains(&line), "{line}:\n{shown}");
    }
    scene.set_env("LEASH_GRACE", "soon");
    let answer = scene.answer(["run", "--", "true"]);
    assert!(answer.code == 2 && answer.stderr.starts_with("error: LEASH_GRACE: `soon` "), "{answer:?}");
    // A mistake counts even if the option was typed: the next start would fail.
    assert_eq!(scene.answer(["run", "--grace", "1s", "--", "true"]).code, 2);
    let doctor = scene.answer(["doctor"]);
    assert!(doctor.code == 1 && doctor.stdout.contains("run defaults       NO    LEASH_GRACE: "), "{doctor:?}");
    // Other commands do not read them.
    assert_eq!(scene.answer(["ps"]).code, 0);
}

#[test]
fn doctor_fails_without_a_usable_containment() {
    let mut scene = or_skip!(Scene::set(Who::User));
    scene.set_env("LEASH_RUNTIME_DIR", "/proc/leash");
    let answer = scene.answer(["doctor"]);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stdout.contains("leash run does not work here"), "{answer:?}");
}

#[test]
fn demo_shows_the_difference_and_ends_clean() {
    for who in [Who::Root, Who::User] {
        let scene = or_skip!(Scene::set(who));
        let answer = scene.answer(["demo"]);
        assert_eq!(answer.code, 0, "{answer:?}");
        assert_eq!(answer.stdout.matches("ALIVE").count(), 4, "{answer:?}");
        assert!(answer.stdout.contains("all gone"), "{answer:?}");
        if let Some(outer) = scene.outer() {
            outer.wait_only(&[], LIMIT).expect("the demonstration ends clean");
        }
    }
}

/// A host's log may be gone; the history says why its server never ran.
#[test]
fn failed_start_has_a_receipt() {
    let scene = or_skip!(Scene::set(Who::User));
    let options = ["--session", "job-1", "--name", "files", "--label", "team=red"];
    let run = |options: &[&str], server: &[&str]| {
        let words = server.iter().map(OsString::from).collect::<Vec<_>>();
        let words = scene.run_words(options, &words);
        scene.command(&words[0]).args(&words[1..]).status().expect("cannot start leash").code()
    };
    assert_eq!(run(&options, &["/no/such/program"]), Some(127));
    assert_eq!(run(&["--name", "dir"], &["/etc"]), Some(126));
    assert_eq!(run(&["--name", "owned", "--owner", "pid:4194305"], &["true"]), Some(125));
    assert_eq!(run(&["--name", "caps", "--contain", "group", "--memory", "1G"], &["true"]), Some(125));
    let receipts = receipts(&scene);
    let whys: Vec<(&Value, &Value)> =
        receipts.iter().map(|receipt| (&receipt["name"], &receipt["reason"]["why"])).collect();
    let refused = &receipts[3]["refused"];
    assert_eq!(
        whys,
        [
            (&"files".into(), &json!({ "kind": "not_found", "command": "/no/such/program" })),
            (&"dir".into(), &json!({ "kind": "is_directory", "path": "/etc" })),
            (&"owned".into(), &json!({ "kind": "owner", "owner": { "kind": "no_such_process", "pid": 4_194_305 } })),
            (&"caps".into(), &json!({ "kind": "contain", "refused": refused })),
        ],
    );
    for receipt in &receipts {
        assert_eq!(
            (&receipt["reason"]["kind"], &receipt["holdings"]),
            (&"start_failed".into(), &Value::Array(Vec::new()))
        );
    }
    assert_eq!((&receipts[0]["session"], &receipts[0]["labels"]["team"]), (&"job-1".into(), &"red".into()));
    assert_eq!(receipts[3]["refused"][0]["containment"], "group", "{receipts:#?}");
    let text = scene.answer(["history", "job-1"]).stdout;
    assert!(text.contains("a server did not start"), "{text}");
    assert!(text.contains("job-1: command `/no/such/program` was not found\n"), "{text}");
    assert_eq!(scene.ledger(), Vec::<std::path::PathBuf>::new(), "nothing is left in the ledger");
}

/// `echo REQUEST | leash run -- server`: leash does not end a slow server before it has read its input.
#[test]
fn unread_input_is_waited_for() {
    let scene = or_skip!(Scene::set(Who::User));
    // The server reads when the test permits it, long after its stdin was closed and several graces have passed. After
    // that it may be slow to exit.
    let go = scene.dir().join("go");
    let script = format!("while ! [ -e {} ]; do sleep 0.05; done; trap '' TERM; cat", go.display());
    let words = scene.run_words(["-v", "--grace", "500ms", "--name", "slow"], &shell(&script));
    let mut command = scene.command(&words[0]);
    command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut leash = command.spawn().expect("cannot start leash");
    let mut stdin = leash.stdin.take().expect("it is a pipe");
    std::io::Write::write_all(&mut stdin, b"hello\n").expect("the pipe takes it");
    drop(stdin);
    testkit::wait::until("the end to begin", || (sessions(&scene).first()?["phase"] == "ending").then_some(()));
    let grace = std::time::Duration::from_millis(500);
    testkit::wait::step(grace * 3);
    std::fs::write(&go, "").expect("cannot tell it to go on");
    let output = leash.wait_with_output().expect("cannot wait for leash");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"hello\n"[..]), "{output:?}");
}

/// Receipts are in the run's state directory, not in that of `leash end`.
#[test]
fn end_finds_the_receipt_of_another_state_directory() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let words = scene.run_words(["--session", "away", "--grace", "100ms"], &scene.tree("stubborn", [] as [&str; 0]));
    let host = scene.host(&Manner::default(), None, &words);
    scene.census().wait_ready(LIMIT).expect("the tree did not come up");
    scene.set_env("XDG_STATE_HOME", "/nonexistent");
    let ended = scene.answer(["end", "away"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(scene.answer(["end", ""]).code, 2, "an empty word is no session");
    scene.wait_gone(&[host.pid()]).expect("nothing but the host is left");
}

/// leash and keeper wait for events and use no CPU in between. A loop that wakes up without reason would.
#[test]
fn idle_leash_uses_no_cpu() {
    for contain in ["reaper", "sealed"] {
        let mut scene = or_skip!(Scene::set(Who::User));
        let words = scene.run_words(["--contain", contain, "--grace", "100ms"], &scene.tree("polite", [] as [&str; 0]));
        let mut host = scene.host(&Manner::default(), None, &words);
        scene.census().wait_ready(LIMIT).expect("the tree did not come up");
        let leash = host.server().pid();
        let keeper = testkit::leash::keeper(leash).pid();
        let before = [leash, keeper].map(cpu_ticks);
        // The test needs a second without any event.
        testkit::wait::step(std::time::Duration::from_secs(1));
        let spent: Vec<u64> = [leash, keeper].map(cpu_ticks).iter().zip(before).map(|(now, then)| now - then).collect();
        // In 100 ticks of a second a spinning process uses tens, a sleeping one the two or three of its scans of the
        // tree.
        assert!(spent.iter().all(|ticks| *ticks < 10), "{contain}: leash and keeper used {spent:?} ticks");
        host.close_stdin();
        scene.wait_gone(&[host.pid()]).expect("nothing but the host is left");
    }
}

/// The CPU time of a process, in ticks of 10 ms.
fn cpu_ticks(pid: Pid) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).expect("it is alive");
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields).expect("a stat line");
    fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
}
