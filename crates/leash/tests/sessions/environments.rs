//! One ledger, whatever environment a host passes to its servers: a run that was started in one environment is listed,
//! explained, ended, swept and remembered from every other.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use rustix::process::Signal;
use serde_json::Value;
use testkit::leash::Answer;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::{User, Who};
use testkit::user_bus::UserBus;
use testkit::wait::{self, LIMIT};

use crate::stage::{Joiner, NONE};

/// The variables that a host passes to its servers.
#[derive(Clone, Copy, Debug)]
enum Passes {
    /// All of its own.
    All,
    /// These only.
    Only(&'static [&'static str]),
}

/// The hosts, with the variables that they pass. Where no source is named, a server that prints its environment told.
const HOSTS: [(&str, Passes); 7] = [
    // Claude Code 2.1.325, `claude mcp list`. It adds CLAUDECODE, CLAUDE_CODE_SESSION_ID and others.
    ("claude-code", Passes::All),
    // Gemini CLI 0.61.0, `gemini mcp list`. It leaves out SSH_AUTH_SOCK and names that look like a secret's.
    ("gemini", Passes::All),
    // VS Code, src/vs/workbench/api/node/extHostMcpNode.ts: `const env = { ...process.env }`.
    ("vscode", Passes::All),
    // Codex 0.166.0, `codex app-server`.
    ("codex", Passes::Only(&["HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"])),
    // @modelcontextprotocol/sdk, client/stdio.js: DEFAULT_INHERITED_ENV_VARS.
    ("typescript-sdk", Passes::Only(&["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"])),
    // mcp/client/stdio.py: DEFAULT_INHERITED_ENV_VARS.
    ("python-sdk", Passes::Only(&["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"])),
    // `env -i`, and hosts with a configured environment that replaces their own.
    ("nothing", Passes::Only(&[])),
];

/// A user, and the variables of the user's shell.
struct Stage {
    scene: Scene,
    shell: Vec<(&'static str, OsString)>,
    /// Directories outside of the scene, which are removed at the end.
    made: Vec<PathBuf>,
}

impl Stage {
    /// A fresh user with a home, and with this XDG_RUNTIME_DIR.
    fn set(runtime_dir: impl FnOnce(&Scene) -> Option<PathBuf>) -> Result<Stage, String> {
        // Only root can be a user whose directories in /run/user and /tmp are not in use.
        User::find(Who::Root)?;
        let scene = Scene::set(Who::User)?;
        let home = scene.dir().join("home");
        own_directory(&scene, &home);
        let mut shell: Vec<(&'static str, OsString)> = vec![
            ("HOME", home.into()),
            ("USER", "ada".into()),
            ("LOGNAME", "ada".into()),
            ("SHELL", "/bin/sh".into()),
            ("TERM", "xterm-256color".into()),
            ("LANG", "C.UTF-8".into()),
            ("LC_ALL", "C.UTF-8".into()),
            ("TMPDIR", "/tmp".into()),
            ("TZ", "UTC".into()),
            ("PATH", std::env::var_os("PATH").unwrap_or_default()),
            ("XDG_SESSION_ID", "3".into()),
            ("XDG_STATE_HOME", scene.dir().join("state").into()),
        ];
        let mut made = vec![PathBuf::from(format!("/tmp/leash-{}", scene.user().uid()))];
        if let Some(dir) = runtime_dir(&scene) {
            own_directory(&scene, &dir);
            shell.push(("DBUS_SESSION_BUS_ADDRESS", format!("unix:path={}", dir.join("bus").display()).into()));
            shell.push(("XDG_RUNTIME_DIR", dir.clone().into()));
            made.push(dir);
        }
        Ok(Stage { scene, shell, made })
    }

    /// A command in the environment that a host passes.
    fn command(&self, passes: Passes, words: &[OsString]) -> Command {
        let is_passed = |name: &str| match passes {
            Passes::All => true,
            Passes::Only(names) => names.contains(&name),
        };
        let mut command = self.scene.command(&words[0]);
        command.args(&words[1..]).env_clear();
        command.envs(self.shell.iter().filter(|(name, _)| is_passed(name)).map(|(name, value)| (name, value)));
        command
    }

    fn answer(&self, passes: Passes, words: &[&str]) -> Answer {
        let leash = self.scene.leash_path().into_os_string();
        let words: Vec<OsString> = std::iter::once(leash).chain(words.iter().map(OsString::from)).collect();
        self.command(passes, &words).output().expect("cannot start leash").into()
    }

    /// Starts a server as a host does; the session has the host's name.
    fn start(&self, host: &str, passes: Passes) -> Joiner {
        let options = ["--session", host, "--name", host, "--contain", "reaper", "--grace", "0"];
        let words = self.scene.run_words(options, &self.scene.tree("setsid", NONE));
        Joiner::start(self.command(passes, &words))
    }

    /// The runs that are listed.
    fn listed(&self, passes: Passes) -> Vec<Value> {
        self.answer(passes, &["ps", "--leashed", "--json"]).json()["sessions"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until the listing has exactly these running sessions.
    #[track_caller]
    fn wait_listed(&self, passes: Passes, expected: &BTreeSet<&str>) -> Vec<Value> {
        let look = || {
            let listed = self.listed(passes);
            let running = listed.iter().filter(|run| run["phase"] == "running" && run["processes"] == 2);
            let names: Vec<String> =
                running.map(|run| run["session"].as_str().unwrap_or_default().to_owned()).collect();
            (names.len() == expected.len() && names.iter().all(|name| expected.contains(name.as_str())))
                .then_some(listed)
        };
        wait::within(LIMIT, look).unwrap_or_else(|| panic!("{passes:?}: {:#?}", self.listed(passes)))
    }

    /// The members that the records of all places name. A sweep ends only these.
    fn recorded_members(&self) -> usize {
        let dirs =
            [self.scene.dir().join("xdg/leash"), PathBuf::from(format!("/tmp/leash-{}", self.scene.user().uid()))];
        let files = dirs.iter().flat_map(|dir| fs::read_dir(dir.join("sessions")).into_iter().flatten().flatten());
        let records = files.filter_map(|file| serde_json::from_slice::<Value>(&fs::read(file.path()).ok()?).ok());
        records.filter_map(|record| Some(record["members"].as_array()?.len())).sum()
    }

    /// The sessions in the history.
    fn history(&self, passes: Passes) -> Vec<String> {
        let history = self.answer(passes, &["history", "--json"]).json();
        let receipts = history["receipts"].as_array().into_iter().flatten();
        receipts.map(|receipt| receipt["session"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for dir in &self.made {
            let _ = fs::remove_dir_all(dir);
        }
        // Another test of this kind may be using it.
        let _ = fs::remove_dir("/run/user");
    }
}

fn own_directory(scene: &Scene, dir: &Path) {
    fs::create_dir_all(dir).expect("cannot make a directory");
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).expect("cannot set its mode");
    scene.user().own(dir).expect("cannot give it to the user");
}

/// The directory that logind makes.
fn usual(scene: &Scene) -> Option<PathBuf> {
    Some(PathBuf::from(format!("/run/user/{}", scene.user().uid())))
}

/// Every host starts a server, and every host's environment sees, explains, ends and remembers all of them.
fn check_one_ledger(stage: &mut Stage) {
    let mut runs: Vec<Joiner> = HOSTS.iter().map(|(host, passes)| stage.start(host, *passes)).collect();
    stage.scene.census().wait_all_ready(HOSTS.len(), LIMIT).expect("the trees did not come up");
    let mut left: BTreeSet<&str> = HOSTS.iter().map(|(host, _)| *host).collect();
    for (number, (_, passes)) in HOSTS.into_iter().enumerate() {
        let run = stage.wait_listed(passes, &left).swap_remove((number + 3) % HOSTS.len());
        let why = stage.answer(passes, &["why", &run["leader"]["pid"].to_string(), "--json"]).json();
        assert_eq!(why["finding"]["leashed"], run["session"], "{passes:?}: {why:#}");
        let found = stage.answer(passes, &["ps", "--json"]).json();
        assert_eq!(found["servers"].as_array().map(Vec::len), Some(0), "{passes:?}: {found:#}");
    }
    for (number, (host, _)) in HOSTS.iter().enumerate() {
        let (_, other) = HOSTS[(number + 3) % HOSTS.len()];
        let ended = stage.answer(other, &["end", host]);
        assert_eq!(ended.code, 0, "{host}: {ended:?}");
        left.remove(host);
        stage.wait_listed(other, &left);
    }
    runs.iter_mut().for_each(Joiner::wait);
    for (_, passes) in HOSTS {
        let history = stage.history(passes);
        let names: BTreeSet<&str> = history.iter().map(String::as_str).collect();
        assert_eq!(names, HOSTS.iter().map(|(host, _)| *host).collect(), "{passes:?}");
        assert_eq!(history.len(), HOSTS.len(), "each receipt once, {passes:?}: {history:?}");
    }
    stage.scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn hosts_agree_in_a_session_of_the_user() {
    let mut stage = or_skip!(Stage::set(usual));
    check_one_ledger(&mut stage);
    let uid = stage.scene.user().uid();
    assert!(Path::new(&format!("/run/user/{uid}/leash/sessions")).is_dir(), "it was not used");
    assert!(!Path::new(&format!("/tmp/leash-{uid}")).exists(), "there are two ledgers");
}

#[test]
fn hosts_agree_without_a_runtime_directory() {
    check_one_ledger(&mut or_skip!(Stage::set(|_| None)));
}

/// The directory of `su`, containers and WSL: processes without the variable cannot guess it.
#[test]
fn hosts_agree_with_an_unusual_runtime_directory() {
    check_one_ledger(&mut or_skip!(Stage::set(|scene| Some(scene.dir().join("xdg")))));
}

/// `/var/run` is a link to `/run`: the same directory must not be read twice.
#[test]
fn a_link_to_the_usual_directory_is_the_same_directory() {
    let mut stage = or_skip!(Stage::set(usual));
    let link = stage.scene.dir().join("link");
    std::os::unix::fs::symlink(usual(&stage.scene).expect("it has one"), &link).expect("cannot link");
    stage.shell.retain(|(name, _)| *name != "XDG_RUNTIME_DIR");
    stage.shell.push(("XDG_RUNTIME_DIR", link.into()));
    check_one_ledger(&mut stage);
}

/// leash and keeper of a run are killed, and a start in another environment ends what they left.
#[test]
fn a_start_sweeps_runs_of_another_environment() {
    let mut stage = or_skip!(Stage::set(|scene| Some(scene.dir().join("xdg"))));
    for (from, to) in [("vscode", "codex"), ("nothing", "gemini")] {
        let passes = |host: &str| HOSTS.iter().find(|(name, _)| *name == host).expect("a host").1;
        let run = stage.start(from, passes(from));
        stage.scene.census().wait_ready(LIMIT).expect("the tree did not come up");
        stage.wait_listed(passes(to), &BTreeSet::from([from]));
        wait::until("both members in the ledger", || (stage.recorded_members() == 2).then_some(()));
        let keeper = testkit::leash::keeper(run.handle().pid());
        for signal in [Signal::STOP, Signal::KILL] {
            run.signal(signal);
            keeper.signal(signal).expect("cannot signal the keeper");
        }
        let leash = stage.scene.leash_path().display().to_string();
        let started = stage.command(passes(to), &[leash, "run".into(), "--".into(), "true".into()].map(OsString::from));
        assert!(Joiner::start(started).succeeded(), "the next start failed");
        stage.scene.wait_gone(&[]).expect("the next start sweeps");
        assert!(stage.history(passes(to)).contains(&from.to_owned()));
    }
}

/// A gateway is found by its control socket, also behind the socket that a killed gateway left.
#[test]
fn a_gateway_of_another_environment_is_found() {
    let stage = or_skip!(Stage::set(|scene| Some(scene.dir().join("xdg"))));
    let leash = stage.scene.leash_path().into_os_string();
    let starter = std::process::id().to_string();
    let words = ["serve", "--on-demand", "--starter", &starter].map(OsString::from);
    let words: Vec<OsString> = std::iter::once(leash).chain(words).collect();
    let gateway = Joiner::start(stage.command(Passes::All, &words));
    let attach = || stage.answer(Passes::Only(&["HOME"]), &["attach", "no-such-session/files"]);
    wait::until("the gateway to answer", || attach().stderr.contains("no-such-session").then_some(()));
    let stale = PathBuf::from(format!("/tmp/leash-{}/control.sock", stage.scene.user().uid()));
    drop(std::os::unix::net::UnixListener::bind(&stale).expect("cannot make a socket"));
    let answer = attach();
    assert_eq!(answer.code, 1, "{answer:?}");
    gateway.signal(Signal::TERM);
    assert!(gateway.succeeded(), "the gateway failed");
}

/// Any user can make `/tmp/leash-UID`. Records in it would make leash end processes of its own user.
#[test]
fn a_directory_of_another_user_is_not_read() {
    let stage = or_skip!(Stage::set(usual));
    let forged = PathBuf::from(format!("/tmp/leash-{}", stage.scene.user().uid()));
    let run = stage.start("codex", Passes::All);
    stage.wait_listed(Passes::All, &BTreeSet::from(["codex"]));
    let own = usual(&stage.scene).expect("it has one").join("leash");
    fs::create_dir_all(forged.join("sessions")).expect("cannot make a directory");
    for entry in fs::read_dir(own.join("sessions")).expect("the ledger").flatten() {
        // The same run under another number, which no process has locked.
        let name = entry.file_name().to_string_lossy().replacen(char::is_alphanumeric, "x", 1);
        let text = fs::read_to_string(entry.path()).expect("a record");
        let run = entry.path().file_stem().expect("a name").to_string_lossy().into_owned();
        let text = text.replace(&run, &run.replacen(char::is_alphanumeric, "x", 1)).replace("codex", "forged");
        fs::write(forged.join("sessions").join(name), text).expect("cannot write");
    }
    for path in [forged.clone(), forged.join("sessions")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("cannot set its mode");
    }
    stage.wait_listed(Passes::Only(&[]), &BTreeSet::from(["codex"]));
    let answer = stage.answer(Passes::Only(&[]), &["run", "--", "true"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(run.is_alive() && stage.scene.witness().is_populated(), "a forged record ended it");
    assert_eq!(stage.answer(Passes::All, &["end", "--all"]).code, 0);
    stage.scene.wait_gone(&[]).expect("nothing is left");
}

/// Without HOME the home directory is that of the password database.
#[test]
fn home_comes_from_the_password_database() {
    let stage = or_skip!(Stage::set(|_| None));
    let (uid, home, passwd) =
        (stage.scene.user().uid(), stage.scene.dir().join("home"), stage.scene.dir().join("passwd"));
    fs::write(&passwd, format!("root:x:0:0::/root:/bin/sh\nada:x:{uid}:{uid}::{}:/bin/sh\n", home.display()))
        .expect("cannot write");
    let script = format!(
        "mount --bind {} /etc/passwd && exec setpriv --reuid {uid} --regid {uid} --clear-groups env -i {} run --session s -- /bin/true",
        passwd.display(),
        stage.scene.leash_path().display()
    );
    let root = or_skip!(Scene::set(Who::Root));
    let output = root.command("unshare").args(["--mount", "sh", "-c", &script]).output().expect("unshare");
    assert!(output.status.success(), "{output:?}");
    assert!(home.join(".local/state/leash/receipts.jsonl").is_file(), "the receipt is not in the home directory");
    // It is found without the password database as well.
    assert_eq!(stage.history(Passes::Only(&[])), ["s"]);
}

/// Services of root have no session, and logind removes `/run/user/0` when root logs out.
#[test]
fn root_uses_one_directory_with_and_without_a_session() {
    let mut scene = or_skip!(Scene::set(Who::Root));
    scene.set_env("LEASH_RUNTIME_DIR", "");
    for variable in ["", "XDG_RUNTIME_DIR=/run/user/0"] {
        let script = format!(
            "mkdir -p -m 700 /run/user/0 && exec env {variable} {} doctor --json",
            scene.leash_path().display()
        );
        let output = scene.zoo(["ns", "--tmpfs", "/run", "--", "sh", "-c", &script]).output().expect("cannot start");
        let report = Answer::from(output).json();
        let ground = report["ground"].as_array().expect("a list");
        let row = ground.iter().find(|row| row["what"] == "runtime directory").expect("it is in the report");
        assert_eq!((&row["text"], &row["fine"]), (&"/run/leash".into(), &true.into()), "{variable}");
    }
}

/// Codex passes neither XDG_RUNTIME_DIR nor the address of the bus. A process of a session finds the bus all the same; a
/// system service of the same user must not, because the user manager ends with the session.
#[test]
fn the_user_bus_is_found_without_variables() {
    let user = or_skip!(User::find(Who::Root).and_then(|_| User::find(Who::User)));
    let bus = Rc::new(or_skip!(UserBus::start(user.uid(), user.uid())));
    let scene = Scene::set_with(&bus);
    let usual = usual(&scene).expect("it has one");
    fs::create_dir_all("/run/user").expect("cannot make a directory");
    let run = bus.env().into_iter().find(|(name, _)| name == "XDG_RUNTIME_DIR").expect("it is set").1;
    std::os::unix::fs::symlink(run, &usual).expect("cannot link");
    let cgroup = format!("/sys/fs/cgroup/{}", bus.cgroup().file_name().expect("a name").display());
    let slice = format!("{cgroup}/user-{}.slice/session.scope", bus.uid());
    let chosen = |enter: &str| {
        let leash = scene.leash_path();
        let script = format!("{enter} exec env -i LEASH_RUNTIME_DIR=$PWD/run {} doctor --json", leash.display());
        let mut command = scene.command("/bin/sh");
        let answer = Answer::from(command.args(["-c", &script]).output().expect("cannot start"));
        answer.json()["chosen"].clone()
    };
    let in_session = chosen(&format!("mkdir -p {slice} && echo $$ > {slice}/cgroup.procs &&"));
    let elsewhere = chosen("");
    fs::remove_file(&usual).expect("cannot remove the link");
    let _ = fs::remove_dir("/run/user");
    assert_eq!(in_session, "unit");
    assert_ne!(elsewhere, "unit");
}
