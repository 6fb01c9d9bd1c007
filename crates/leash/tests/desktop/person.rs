//! A person with an account on this machine, and the servers that they start.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use testkit::Scratch;
use testkit::census::Census;
use testkit::leash::{Answer, leash, zoo};
use testkit::process::Handle;
use testkit::wait::{self, LIMIT};

/// The time between two looks: each starts a program.
const STEP: Duration = Duration::from_millis(200);

/// Waits for an event that `look` returns.
pub(crate) fn within<T>(look: impl FnMut() -> Option<T>) -> Option<T> {
    wait::every(STEP, LIMIT, look)
}

/// The same for an event that must happen.
pub(crate) fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(look).unwrap_or_else(|| panic!("waited {LIMIT:?} in vain for {what}"))
}

/// The key with which root logs in as any person.
const KEY: &str = "/root/.ssh/id_ed25519.pub";

/// Checks that this machine is the box: these tests end all sessions of the users that they make.
pub(crate) fn in_the_box() -> Result<(), &'static str> {
    std::env::var_os("LEASH_BOX").map(|_| ()).ok_or("it runs in a virtual machine: `cargo xtask box`")
}

/// A person with an account that lives as long as the test.
pub(crate) struct Person {
    pub(crate) name: String,
}

impl Person {
    pub(crate) fn new() -> Person {
        let name = format!("p{:08x}", testkit::random() as u32);
        root("useradd", &["--create-home", "--shell", "/bin/bash", &name]);
        // Without a password sshd and login refuse the account as locked.
        root("passwd", &["--delete", "--quiet", &name]);
        let person = Person { name };
        let dir = Path::new("/home").join(&person.name).join(".ssh");
        fs::create_dir(&dir).expect("a new home");
        fs::copy(KEY, dir.join("authorized_keys")).expect("the key of the box");
        for path in [dir.clone(), dir.join("authorized_keys")] {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("ours");
            chown(&path, Some(person.uid()), Some(person.uid())).expect("we are root");
        }
        person
    }

    pub(crate) fn uid(&self) -> u32 {
        root("id", &["-u", &self.name]).trim().parse().expect("a number")
    }

    /// A command in a new login session through sshd.
    pub(crate) fn ssh(&self, script: &str) -> Command {
        let mut command = Command::new("ssh");
        command.arg(format!("{}@127.0.0.1", self.name)).arg(script);
        command
    }

    /// The output of a script in a new login session.
    pub(crate) fn answer(&self, script: &str) -> Answer {
        self.ssh(script).stdin(Stdio::null()).output().expect("ssh starts").into()
    }

    /// A command as this person, without a login: it does not change which sessions there are.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let uid = self.uid();
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={uid}"), format!("--regid={uid}"), "--init-groups".to_owned()]).arg(program);
        command.env_clear().env("HOME", self.home()).env("PATH", "/usr/bin:/bin").current_dir("/");
        command.env("XDG_RUNTIME_DIR", format!("/run/user/{uid}")).stdin(Stdio::null());
        // An instrumented leash counts its lines there.
        command.envs(std::env::var_os("LLVM_PROFILE_FILE").map(|file| ("LLVM_PROFILE_FILE", file)));
        command
    }

    /// The output of `leash`, without a login.
    pub(crate) fn leash(&self, words: &str) -> Answer {
        self.command(leash()).args(words.split_whitespace()).output().expect("setpriv starts").into()
    }

    pub(crate) fn home(&self) -> PathBuf {
        Path::new("/home").join(&self.name)
    }

    /// Writes a file below the home directory. The file and the new directories above it are the person's.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home().join(name);
        fs::create_dir_all(path.parent().expect("it is below the home directory")).expect("the home of the person");
        fs::write(&path, text).expect("the home of the person");
        for path in path.ancestors().take_while(|path| *path != self.home()) {
            chown(path, Some(self.uid()), Some(self.uid())).expect("we are root");
        }
        path
    }

    /// The login sessions.
    pub(crate) fn sessions(&self) -> Vec<String> {
        let output =
            Command::new("loginctl").args(["show-user", "--property=Sessions", "--value", &self.name]).output();
        // Without a session and without linger, logind does not know the person.
        let sessions = String::from_utf8_lossy(&output.expect("loginctl starts").stdout).into_owned();
        sessions.split_whitespace().map(str::to_owned).collect()
    }

    /// Ends all login sessions.
    pub(crate) fn log_out(&self) {
        for session in self.sessions() {
            // A session may end by itself in the meantime.
            let _ = Command::new("loginctl").args(["terminate-session", &session]).output();
        }
    }

    /// The receipts of all that ended.
    pub(crate) fn receipts(&self) -> Vec<Value> {
        let history = self.leash("history --json").json();
        history["receipts"].as_array().expect("a list").clone()
    }

    /// Sets whether the user manager stays without a session.
    pub(crate) fn linger(&self, on: bool) {
        root("loginctl", &[if on { "enable-linger" } else { "disable-linger" }, &self.name]);
    }

    /// The first process of the person's user manager.
    pub(crate) fn manager_pid(&self) -> i32 {
        let unit = format!("user@{}.service", self.uid());
        root("systemctl", &["show", "--property=MainPID", "--value", &unit]).trim().parse().expect("a number")
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        // Some tests have done it already.
        let _ = Command::new("loginctl").args(["terminate-user", &self.name]).output();
        let _ = Command::new("loginctl").args(["disable-linger", &self.name]).output();
        // Fails until the last process is gone.
        let is_gone =
            || Command::new("userdel").args(["--remove", &self.name]).output().ok()?.status.success().then_some(());
        let _ = wait::every(STEP, LIMIT, is_gone);
    }
}

/// A server that starts up to 40 processes, prints how many the kernel allowed, and ends them.
pub(crate) const FORKS: &str = r#"python3 -c '
import os, signal
started = []
try:
    while len(started) < 40:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        started.append(pid)
except BlockingIOError:
    pass
print(len(started))
for pid in started:
    os.kill(pid, signal.SIGKILL)
    os.wait()
'"#;

/// Runs a program as root; returns its stdout.
pub(crate) fn root(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A tree of the zoo with a census of its own.
pub(crate) struct Tree {
    pub(crate) census: Census,
    /// The command line of the tree.
    pub(crate) words: String,
    _scratch: Scratch,
}

impl Tree {
    pub(crate) fn new(kind: &str) -> Tree {
        let scratch = Scratch::new();
        fs::set_permissions(&*scratch, fs::Permissions::from_mode(0o755)).expect("ours");
        let census = Census::create(scratch.join("census"));
        let words = format!("{} tree {kind} --census {}", zoo().display(), census.path().display());
        Tree { census, words, _scratch: scratch }
    }

    /// The script that runs the tree on a leash.
    pub(crate) fn on_a_leash(&self, options: &str) -> String {
        format!("exec {} run {options} -- {}", leash().display(), self.words)
    }

    pub(crate) fn wait_ready(&mut self) {
        if let Err(heard) = self.census.wait_ready(LIMIT) {
            panic!("the tree did not come up; it said: {heard}");
        }
    }

    pub(crate) fn check_gone(&mut self) {
        self.census.wait_gone(LIMIT).expect("the tree must be gone");
    }

    pub(crate) fn check_lives(&self) {
        assert!(self.census.is_populated(), "the tree must live");
    }
}

/// A running command. Dropping it kills its process.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Running(command.spawn().expect("it starts"))
    }

    /// Closes its stdin.
    pub(crate) fn close(&mut self) {
        drop(self.0.stdin.take());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a signal to a process that was just seen alive.
pub(crate) fn signal(pid: i32, signal: Signal) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a number of a process");
    let handle = Handle::open(pid, |_| true).expect("it is alive");
    handle.signal(signal).expect("we are root");
}
