//! A real user manager, and the property that `leash` relies on: a scope that is bound to a guard service dies with it.
//!
//! The test queries the manager with systemd's own `busctl`, so the facts do not come from the code under test.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use rustix::process::{Pid, Signal};
use testkit::process::Handle;
use testkit::user::{User, Who};
use testkit::user_bus::UserBus;
use testkit::wait::{self, Deadline, LIMIT};
use testkit::{note, or_skip};

/// Prints `up`, waits for a line, and then starts five children that ignore SIGTERM, SIGHUP and SIGINT.
const TREE: &str = "echo up; read go; trap '' TERM HUP INT
    for i in 1 2 3 4 5; do sleep 1000 & done
    echo complete; wait";

/// In its scope: kills a child in one leaf, and then keeps a child in another leaf.
const GARDENER: &str = r#"echo up; read go
    scope=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
    mkdir "$scope/one" "$scope/two" || exit
    sleep 1000 & child=$!
    echo $child > "$scope/one/cgroup.procs" || exit
    grep -q '/one$' /proc/$child/cgroup && echo moved
    echo 1 > "$scope/one/cgroup.kill"
    wait $child; echo "ended by $?"
    rmdir "$scope/one" && echo removed
    sleep 1000 & echo $! > "$scope/two/cgroup.procs"
    echo complete; wait"#;

#[test]
fn a_scope_dies_when_its_guard_is_killed() {
    check_guard(Who::User, Guard::kill);
}

#[test]
fn a_scope_of_root_dies_when_its_guard_is_killed() {
    check_guard(Who::Root, Guard::kill);
}

#[test]
fn a_scope_dies_when_its_guard_exits_without_failure() {
    check_guard(Who::User, Guard::let_exit);
}

fn check_guard(who: Who, harm: fn(&Guard)) {
    let bus = or_skip!(start(who));
    let mut tree = Script::start(&bus, TREE);
    let watch = Deadline::after(LIMIT);
    let guard = Guard::start(&bus);
    let scope = start_scope(&bus, tree.pid());
    let bound = LIMIT - watch.left();
    // The dead children of a dead shell go to its parent's reaper. The pipe shows when all of them are dead.
    tree.go_on();
    assert_eq!(tree.lines_until("complete"), ["complete"]);

    let watch = Deadline::after(LIMIT);
    harm(&guard);
    tree.read_to_end();
    let emptied = LIMIT - watch.left();
    note(&format!("{who:?}: bound in {bound:?}, scope empty {emptied:?} after harm to the guard"));
    tree.wait();
    wait::until("the scope to be removed", || (!scope.exists()).then_some(()));
    wait::until("the scope to be forgotten", || (show(&bus, "t.scope", "LoadState") == "not-found").then_some(()));
}

#[test]
fn a_process_in_a_delegated_scope_has_leaves_that_die_with_the_guard() {
    let bus = or_skip!(start(Who::User));
    let mut gardener = Script::start(&bus, GARDENER);
    let guard = Guard::start(&bus);
    let scope = start_scope(&bus, gardener.pid());
    gardener.go_on();
    assert_eq!(gardener.lines_until("complete"), ["moved", "ended by 137", "removed", "complete"]);
    assert!(scope.join("two").exists());
    guard.kill();
    gardener.read_to_end();
    gardener.wait();
    wait::until("the scope to be removed", || (!scope.exists()).then_some(()));
}

#[test]
fn command_has_the_requested_pid_uid_and_directory() {
    let bus = or_skip!(start(Who::User));
    let child = bus
        .command(Path::new("/bin/sh"))
        .args(["-c", "echo $$ $(id -u) $(pwd) $XDG_RUNTIME_DIR; sed -n 's/^0:://p' /proc/self/cgroup"])
        .current_dir("/usr")
        .stdout(Stdio::piped())
        .spawn()
        .expect("spawn");
    let pid = child.id();
    let output = child.wait_with_output().expect("output");
    let runtime_dir = bus.env().remove(0).1;
    let cgroup = format!("/{}/session.scope", bus.cgroup().file_name().expect("a name").display());
    let expected = format!("{pid} {} /usr {runtime_dir}\n{cgroup}\n", bus.uid());
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn dropped_bus_leaves_nothing() {
    let bus = or_skip!(start(Who::User));
    let mut tree = Script::start(&bus, TREE);
    let guard = Guard::start(&bus);
    let home = bus.home();
    let cgroup = fs::File::open(bus.cgroup().join("cgroup.events")).expect("open");
    drop(bus);
    assert!(!guard.handle.is_alive());
    tree.read_to_end();
    tree.wait();
    assert!(!home.exists());
    // Reading a file of a removed cgroup fails with ENODEV on every mount.
    let gone = rustix::io::pread(&cgroup, &mut [0; 64], 0);
    assert_eq!(gone, Err(rustix::io::Errno::NODEV));
}

fn start(who: Who) -> Result<UserBus, String> {
    let user = User::find(who)?;
    UserBus::start(user.uid(), user.uid())
}

/// A shell that runs one of the scripts above.
struct Script {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Script {
    fn start(bus: &UserBus, script: &str) -> Script {
        let mut command = bus.command(Path::new("/bin/sh"));
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("spawn");
        let stdin = child.stdin.take().expect("stdin");
        let stdout = BufReader::new(child.stdout.take().expect("stdout"));
        let mut script = Script { child, stdin, stdout };
        assert_eq!(script.lines_until("up"), ["up"]);
        script
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn go_on(&mut self) {
        self.stdin.write_all(b"go\n").expect("write");
    }

    fn lines_until(&mut self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line| line != last) {
            let mut line = String::new();
            self.stdout.read_line(&mut line).expect("read");
            assert!(!line.is_empty(), "ended after {lines:?}");
            lines.push(line.trim_end().to_owned());
        }
        lines
    }

    /// Returns when every process that has the pipe is dead.
    fn read_to_end(&mut self) {
        self.stdout.read_to_end(&mut Vec::new()).expect("read");
    }

    fn wait(mut self) {
        self.child.wait().expect("wait");
    }
}

/// The service that the scope is bound to: it waits for a writer of a FIFO, and exits when the writer has closed it.
struct Guard {
    handle: Handle,
    fifo: PathBuf,
}

impl Guard {
    /// `Type=exec`: with `simple`, a guard that cannot be executed counts as started for a moment. The scope would take
    /// its processes in during that moment, and they would be killed with it.
    fn start(bus: &UserBus) -> Guard {
        let fifo = bus.home().join("guard");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o644.into()).expect("mkfifo");
        let properties = [
            "Type s exec",
            "KillSignal i 9",
            "CollectMode s inactive-or-failed",
            &format!("ExecStart a(sasb) 1 /bin/cat 2 cat {} false", fifo.display()),
        ];
        start_unit(bus, "t-guard.service", &properties);
        let main = wait::until("the guard", || Pid::from_raw(show(bus, "t-guard.service", "MainPID").parse().ok()?));
        let handle = Handle::open(main, |process| process.is_alive()).expect("the guard lives");
        Guard { handle, fifo }
    }

    fn kill(&self) {
        self.handle.signal(Signal::KILL).expect("kill");
    }

    fn let_exit(&self) {
        drop(fs::File::options().write(true).open(&self.fifo).expect("open"));
    }
}

/// Returns the directory of the scope, after `pid` has arrived in it.
fn start_scope(bus: &UserBus, pid: u32) -> PathBuf {
    let properties = [
        &format!("PIDs au 1 {pid}"),
        "BindsTo as 1 t-guard.service",
        "After as 1 t-guard.service",
        "KillSignal i 9",
        "Delegate b true",
        "CollectMode s inactive-or-failed",
    ];
    start_unit(bus, "t.scope", &properties);
    // The answer says that the job is queued, not that it is done.
    let path = wait::until("the process to be in its scope", || {
        let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let path = cgroups.lines().find_map(|line| line.strip_prefix("0::"))?;
        path.ends_with("/t.scope").then(|| path.to_owned())
    });
    bus.cgroup_at(&path)
}

fn start_unit(bus: &UserBus, name: &str, properties: &[&str]) {
    let output = bus
        .command(Path::new("busctl"))
        .args(["--user", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1"])
        .args(["org.freedesktop.systemd1.Manager", "StartTransientUnit", "ssa(sv)a(sa(sv))"])
        .args([name, "fail", &properties.len().to_string()])
        .args(properties.iter().flat_map(|property| property.split(' ')))
        .arg("0")
        .output()
        .expect("busctl");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
}

fn show(bus: &UserBus, unit: &str, property: &str) -> String {
    let mut command = bus.command(Path::new("systemctl"));
    let output = command.args(["--user", "show", "--value", "-p", property, unit]).output().expect("systemctl");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
