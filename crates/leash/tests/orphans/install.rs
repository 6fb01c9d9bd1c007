//! `leash watch --install` and `--uninstall`, with a real user manager and without one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use testkit::leash::Answer;
use testkit::scene::Scene;
use testkit::user::{User, Who};
use testkit::user_bus::UserBus;
use testkit::{or_skip, wait};

const UNIT: &str = "leash-watch.service";
const TIMER: &str = "leash-watch.timer";

/// The line about the times of the installed watch.
const ENABLED: &str =
    "enabled it: it runs while you are logged in; after `loginctl enable-linger`, also while you are not";

/// A user with a manager.
struct Session {
    scene: Scene,
    bus: Rc<UserBus>,
    leash: PathBuf,
}

impl Session {
    fn start() -> Result<Session, String> {
        let uid = User::find(Who::User)?.uid();
        let bus = Rc::new(UserBus::start(uid, uid)?);
        let scene = Scene::set_with(&bus);
        let leash = scene.leash_path();
        Ok(Session { scene, bus, leash })
    }

    fn units(&self) -> PathBuf {
        self.bus.home().join(".config/systemd/user")
    }

    fn leash(&self, words: &[&str]) -> Answer {
        self.scene.command(&self.leash).args(words).output().expect("cannot start leash").into()
    }

    /// A property of the service, from the manager.
    fn asked(&self, property: &str) -> String {
        self.asked_of(UNIT, property)
    }

    /// A property of a unit, from the manager.
    fn asked_of(&self, unit: &str, property: &str) -> String {
        let words = ["--user", "show", "--value", &format!("--property={property}"), unit];
        let output = self.scene.command("systemctl").args(words).output().expect("cannot start systemctl");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// The command line of the unit's main process.
    fn running(&self) -> Option<Vec<String>> {
        let pid: u32 = self.asked("MainPID").parse().ok().filter(|pid| *pid != 0)?;
        Some(words_of(pid, "cmdline"))
    }

    #[track_caller]
    fn check_there_and_back(&self) {
        let answer = self.leash(&["watch", "--install", "--interval", "90s", "--max-memory", "8G"]);
        assert_eq!(answer.code, 0, "{answer:?}");
        let said = format!("wrote {}\n{ENABLED}\nstarted it\n", self.units().join(UNIT).display());
        assert_eq!((answer.stdout.as_str(), answer.stderr.as_str()), (said.as_str(), ""));
        assert_eq!((self.asked("ActiveState"), self.asked("UnitFileState")), ("active".into(), "enabled".into()));
        let words = self.running().expect("it runs");
        assert_eq!((Path::new(&words[0]), words[1].as_str()), (self.leash.as_path(), "watch"));
        assert!(words.windows(2).any(|pair| pair == ["--max-memory", "8589934592"]), "{words:?}");
        let pid = self.asked("MainPID");
        let stays = self.environment(&pid);
        for name in ["XDG_STATE_HOME", "LEASH_RUNTIME_DIR"] {
            let dir = if name == "XDG_STATE_HOME" { "state" } else { "run" };
            let wanted = format!("{name}={}", self.scene.dir().join(dir).display());
            assert!(stays.contains(&wanted), "{wanted} is not in {stays:?}");
        }

        // A second install replaces the watch, with the new options.
        let answer = self.leash(&["watch", "--install", "--interval", "30s"]);
        assert_eq!(answer.code, 0, "{answer:?}");
        assert_ne!(self.asked("MainPID"), pid);
        let words = self.running().expect("it runs");
        assert!(words.windows(2).any(|pair| pair == ["--interval", "30s"]), "{words:?}");
        assert!(!words.iter().any(|word| word == "--max-memory"), "{words:?}");

        let pid = self.asked("MainPID");
        let answer = self.leash(&["watch", "--uninstall"]);
        assert_eq!(answer.code, 0, "{answer:?}");
        let said = format!("removed {}\nstopped it\n", self.units().join(UNIT).display());
        assert_eq!((answer.stdout.as_str(), answer.stderr.as_str()), (said.as_str(), ""));
        assert_eq!((self.asked("LoadState"), self.asked("ActiveState")), ("not-found".into(), "inactive".into()));
        wait::until("the watch is gone", || (!Path::new("/proc").join(&pid).exists()).then_some(()));
        assert!(fs::symlink_metadata(self.units().join(UNIT)).is_err());
        assert!(fs::symlink_metadata(self.units().join("default.target.wants").join(UNIT)).is_err());
        let answer = self.leash(&["watch", "--uninstall"]);
        assert_eq!((answer.code, answer.stdout.as_str()), (0, "leash-watch.service is not installed\n"), "{answer:?}");
    }

    fn environment(&self, pid: &str) -> Vec<String> {
        words_of(pid.parse().expect("a pid"), "environ")
    }
}

/// The zero-separated words of a file in `/proc/PID`.
fn words_of(pid: u32, file: &str) -> Vec<String> {
    let text = fs::read(format!("/proc/{pid}/{file}")).expect("the process lives");
    let words = text.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

#[test]
fn manager_starts_and_stops_the_watch() {
    let session = or_skip!(Session::start());
    session.check_there_and_back();
}

/// Starts a server, prints its pid, and is killed.
const HOST: &str = "
import os, signal, subprocess
server = subprocess.Popen(['sleep', '86399'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(server.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
";

/// The installed watch ends an orphan, whether it stays or a timer starts it.
fn check_orphan_ended(options: &[&str]) {
    let session = or_skip!(Session::start());
    let config = session.bus.home().join(".claude.json");
    fs::write(&config, r#"{"mcpServers": {"slow": {"command": "sleep", "args": ["86399"]}}}"#).expect("a file");
    session.scene.user().own(&config).expect("it is given away");
    let quick = ["--min-age", "0", "--settle", "200ms", "--grace", "200ms", "--interval", "1s"];
    let answer = session.leash(&[&["watch", "--install"], options, &quick[..]].concat());
    assert_eq!(answer.code, 0, "{answer:?}");
    let mut host = session.scene.command("/usr/bin/python3");
    let host = host.args(["-c", HOST]).output().expect("cannot start the host");
    let server: u32 =
        String::from_utf8_lossy(&host.stdout).trim().parse().unwrap_or_else(|error| panic!("{error}: {host:?}"));
    let receipts = || {
        let history = session.leash(&["history", "--json"]).json();
        history["receipts"].as_array().filter(|receipts| !receipts.is_empty()).cloned()
    };
    // The receipt is in the history of the user that installed it.
    let receipts = wait::until("the receipt", receipts);
    assert_eq!((&receipts[0]["reason"]["kind"], receipts.len()), (&"orphan".into(), 1), "{receipts:?}");
    assert_eq!(receipts[0]["holdings"][0]["leader"]["pid"], server, "{receipts:?}");
    assert_eq!(session.leash(&["watch", "--uninstall"]).code, 0);
}

#[test]
fn installed_watch_ends_orphans() {
    check_orphan_ended(&[]);
}

#[test]
fn installed_timer_ends_orphans() {
    check_orphan_ended(&["--once"]);
}

/// A timer and a service that stays replace each other, and leave nothing behind.
#[test]
fn timer_and_service_replace_each_other() {
    let session = or_skip!(Session::start());
    let install = |options: &[&str]| {
        let answer = session.leash(&[&["watch", "--install", "--interval", "1h"], options].concat());
        assert_eq!((answer.code, answer.stderr.as_str()), (0, ""), "{answer:?}");
        answer.stdout
    };
    let (service, timer) = (session.units().join(UNIT), session.units().join(TIMER));
    let links = [("default.target.wants", UNIT), ("timers.target.wants", TIMER)]
        .map(|(target, unit)| session.units().join(target).join(unit));
    let exist = || [&service, &timer, &links[0], &links[1]].map(|path| fs::symlink_metadata(path).is_ok());

    install(&[]);
    assert_eq!(exist(), [true, false, true, false]);
    let resident = session.running().expect("it runs");
    assert!(!resident.contains(&"--once".to_owned()), "{resident:?}");

    let said = install(&["--once"]);
    let enabled = ENABLED.replace("runs while", "runs every 1h while");
    assert_eq!(said, format!("wrote {}\nwrote {}\n{enabled}\nstarted it\n", service.display(), timer.display()));
    assert_eq!(exist(), [true, true, false, true]);
    assert_eq!(session.asked_of(TIMER, "ActiveState"), "active");
    // The first look is over at once, and the next one is an hour away.
    wait::until("the first look", || {
        let is_over =
            session.asked("ActiveState") == "inactive" && session.asked("ExecMainExitTimestampMonotonic") != "0";
        is_over.then_some(())
    });
    assert_eq!((session.asked("Result"), session.running()), ("success".into(), None));

    install(&[]);
    assert_eq!(exist(), [true, false, true, false]);
    assert_eq!(session.asked_of(TIMER, "ActiveState"), "inactive");
    assert!(session.running().is_some());

    install(&["--once"]);
    let answer = session.leash(&["watch", "--uninstall"]);
    let said = format!("removed {}\nremoved {}\nstopped it\n", service.display(), timer.display());
    assert_eq!((answer.code, answer.stdout, answer.stderr.as_str()), (0, said, ""));
    assert_eq!(exist(), [false; 4]);
    for unit in [UNIT, TIMER] {
        assert_eq!(session.asked_of(unit, "LoadState"), "not-found", "{unit}");
    }
}

/// Special characters of unit files are taken literally in a path.
#[test]
fn paths_with_blanks_and_percent_signs_are_paths() {
    let mut session = or_skip!(Session::start());
    let first = session.leash.clone();
    for name in ["100% of $HOME", "a %h b", "O'Hara's \"c\" \\n $d ${HOME} %i"] {
        let dir = session.scene.dir().join(name);
        fs::create_dir_all(&dir).expect("a directory");
        session.leash = dir.join("leash");
        fs::copy(&first, &session.leash).expect("a copy");
        fs::set_permissions(&session.leash, fs::Permissions::from_mode(0o755)).expect("its mode");
        session.check_there_and_back();
    }
}

/// The unit has the name on PATH, not the link's target: the target goes with the next version.
#[test]
fn unit_has_the_name_on_path() {
    let session = or_skip!(Session::start());
    let bin = session.scene.dir().join("bin");
    fs::create_dir(&bin).expect("a directory");
    std::os::unix::fs::symlink(&session.leash, bin.join("leash")).expect("a link");
    let mut command = session.scene.command(&session.leash);
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display())).args(["watch", "--install"]);
    let answer: Answer = command.output().expect("cannot start leash").into();
    assert_eq!(answer.code, 0, "{answer:?}");
    let text = fs::read_to_string(session.units().join(UNIT)).expect("it was written");
    let start = format!("ExecStart=\"{}\" watch ", bin.join("leash").display());
    assert!(text.contains(&start), "{text}");
    assert_eq!(session.leash(&["watch", "--uninstall"]).code, 0);
}

/// An install fails if the manager cannot find the unit.
#[test]
fn a_manager_that_looks_elsewhere_is_an_error() {
    let session = or_skip!(Session::start());
    let elsewhere = session.scene.dir().join("state");
    let mut command = session.scene.command(&session.leash);
    command.env("XDG_CONFIG_HOME", &elsewhere).args(["watch", "--install"]);
    let answer: Answer = command.output().expect("cannot start leash").into();
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stderr.starts_with("error: the user manager did not start it: "), "{answer:?}");
    assert!(answer.stderr.contains("hint: `systemctl --user status leash-watch.service`"), "{answer:?}");
    assert!(elsewhere.join("systemd/user").join(UNIT).exists());
}

/// It prints what was written and what is left to do.
#[test]
fn without_a_manager_it_is_left_enabled() {
    let mut scene = or_skip!(Scene::set(Who::me()));
    // The user that runs the tests may have a manager.
    scene.set_env("XDG_RUNTIME_DIR", scene.runtime_dir());
    scene.set_env("DBUS_SESSION_BUS_ADDRESS", format!("unix:path={}/bus", scene.runtime_dir().display()));
    let units = scene.dir().join(".config/systemd/user");
    let answer = scene.answer(["watch", "--install"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    let said = format!("wrote {}\n{ENABLED}\n", units.join(UNIT).display());
    assert_eq!(answer.stdout, said);
    assert!(answer.stderr.starts_with("warning: it is not started: systemctl failed ("), "{answer:?}");
    assert!(answer.stderr.contains("run `systemctl --user restart leash-watch.service`"), "{answer:?}");
    let link = units.join("default.target.wants").join(UNIT);
    assert_eq!(fs::read_link(&link).expect("a link"), units.join(UNIT));

    // A partly removed installation is removed as well.
    fs::remove_file(units.join(UNIT)).expect("it was written");
    let answer = scene.answer(["watch", "--uninstall"]);
    assert_eq!((answer.code, answer.stdout), (0, format!("removed {}\n", units.join(UNIT).display())));
    assert!(answer.stderr.contains("systemctl could not stop it"), "{}", answer.stderr);
    assert!(fs::symlink_metadata(&link).is_err());
}

#[test]
fn a_place_that_cannot_be_written_is_an_error() {
    let scene = or_skip!(Scene::set(Who::me()));
    fs::write(scene.dir().join(".config"), "a file where the directory should be").expect("a file");
    let answer = scene.answer(["watch", "--install"]);
    assert_eq!((answer.code, answer.stdout.as_str()), (125, ""), "{answer:?}");
    assert!(answer.stderr.contains("hint: check XDG_CONFIG_HOME"), "{answer:?}");
}
