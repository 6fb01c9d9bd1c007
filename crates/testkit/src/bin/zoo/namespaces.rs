//! `zoo ns`: runs a command in new namespaces, as a container engine does. Needs root.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getgid, getuid, set_parent_process_death_signal, wait, waitpid,
};
use rustix::thread::UnshareFlags;

use crate::sys::{self, Answer, Fork, exit_now, fork};
use crate::{number, value, wrong};

/// The parsed command line.
#[derive(Default)]
pub(crate) struct Order {
    /// A user namespace, in which the user keeps its uid. It lets an unprivileged user create the other namespaces.
    user: bool,
    /// A PID namespace: the command is its PID 1.
    pid: bool,
    /// `/proc` shows the new namespace; otherwise it shows the pids of the old one.
    proc: bool,
    /// `/proc` shows each user only their own processes.
    hidepid: bool,
    /// A network namespace: its processes cannot query the sockets of the old one.
    net: bool,
    /// PID 1 is a small init, and the command its child.
    init: bool,
    pid_max: Option<u32>,
    /// A tiny file system over this directory.
    tmpfs: Option<PathBuf>,
    /// Write into this directory until the disk is full.
    fill: Option<PathBuf>,
    command: VecDeque<OsString>,
}

impl Order {
    pub(crate) fn parse(mut words: VecDeque<OsString>) -> io::Result<Self> {
        let mut order = Self::default();
        while let Some(word) = words.pop_front() {
            match word.to_str() {
                Some("--user") => order.user = true,
                Some("--pid") => order.pid = true,
                Some("--proc") => order.proc = true,
                Some("--hidepid") => order.hidepid = true,
                Some("--net") => order.net = true,
                Some("--init") => order.init = true,
                Some("--pid-max") => order.pid_max = Some(number(words.pop_front())?),
                Some("--tmpfs") => order.tmpfs = Some(value(&mut words)?.into()),
                Some("--fill") => order.fill = Some(value(&mut words)?.into()),
                Some("--") => {
                    order.command = words;
                    return Ok(order);
                }
                _ => break,
            }
        }
        Err(wrong("ns needs -- CMD..."))
    }
}

pub(crate) fn run(order: Order) -> io::Result<()> {
    enter(&order)?;
    if order.pid {
        if let Fork::Parent(first) = fork()? {
            mirror(first);
        }
        // If the process in the old namespace is killed, the new namespace dies with it.
        set_parent_process_death_signal(Some(Signal::KILL))?;
    }
    if order.proc || order.hidepid {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("proc", "/proc", "proc", flags, order.hidepid.then_some(c"hidepid=2"))?;
    }
    if let Some(most) = order.pid_max {
        fs::write("/proc/sys/kernel/pid_max", most.to_string())?;
    }
    if order.init {
        return be_init(order.command);
    }
    Err(command(order.command)?.exec())
}

fn enter(order: &Order) -> io::Result<()> {
    let mut flags = UnshareFlags::NEWNS;
    if order.pid {
        flags |= UnshareFlags::NEWPID;
    }
    if order.net {
        flags |= UnshareFlags::NEWNET;
    }
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    if order.user {
        flags |= UnshareFlags::NEWUSER;
    }
    sys::unshare(flags)?;
    if order.user {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
        fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    }
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private)?;
    if let Some(dir) = &order.tmpfs {
        mount("none", dir, "tmpfs", MountFlags::empty(), Some(c"size=64k,mode=0700"))?;
    }
    if let Some(dir) = &order.fill {
        fill(dir)?;
    }
    Ok(())
}

fn fill(dir: &Path) -> io::Result<()> {
    let mut file = fs::File::create(dir.join("ballast"))?;
    loop {
        match file.write_all(&[0; 4096]) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Reaps everything and ends with the command; the kernel then ends the rest of the namespace.
fn be_init(words: VecDeque<OsString>) -> io::Result<()> {
    let child = command(words)?.spawn()?;
    let child = Pid::from_raw(child.id() as i32).expect("a child has a number");
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == child => exit_now(code(status)),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits for PID 1 of the new namespace and ends as it did.
fn mirror(first: Pid) -> ! {
    // A test that signals the group means the process inside the namespace, not this one.
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        sys::answer(signal, Answer::Ignore);
    }
    loop {
        match waitpid(Some(first), WaitOptions::empty()) {
            Ok(Some((_, status))) => exit_now(code(status)),
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => exit_now(i32::from(crate::FAILED)),
        }
    }
}

fn code(status: WaitStatus) -> i32 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, signal) => 128 + signal.unwrap_or_default(),
    }
}

fn command(mut words: VecDeque<OsString>) -> io::Result<Command> {
    let program = words.pop_front().ok_or_else(|| wrong("ns needs -- CMD..."))?;
    let mut command = Command::new(program);
    command.args(words);
    Ok(command)
}
