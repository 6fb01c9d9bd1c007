//! A server that attacks its own leash. A helper of it forges records, steals descriptors, traces, starves or stops
//! leash, with no more rights than the user that both run as.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::event::Timespec;
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Resource, Rlimit, Signal, pidfd_getfd, pidfd_open, pidfd_send_signal, prlimit,
};
use serde_json::{Value, json};

use crate::sys::seize_and_stop;

/// Descriptor numbers in a keeper, and in a supervisor that another program started.
const CONTROL: i32 = 3;
const LOCK: i32 = 4;

/// The attack of the helper, as written on the command line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attack {
    /// Writes into the record that the tree is gone, and kills the keeper.
    ForgeRecord,
    /// Reports in the keeper's name that the tree is gone.
    ForgeOver,
    /// Reports in the keeper's name that the server never ran.
    ForgeFailure,
    /// Reports in the supervisor's name, to the program that holds the tree, that the start failed and that the tree is
    /// gone.
    ForgeReport,
    /// Stops the keeper with ptrace, as a debugger does.
    Trace,
    /// The same, and kills it: its zombie then belongs to the tracer.
    TraceAndKill,
    /// Uses up every descriptor that leash may open.
    Starve,
    /// Sends SIGSTOP to leash and keeper, again and again.
    Stop,
    /// Holds a copy of the run's lock.
    StealLock,
}

impl Attack {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "forge-record" => Self::ForgeRecord,
            "forge-over" => Self::ForgeOver,
            "forge-failure" => Self::ForgeFailure,
            "forge-report" => Self::ForgeReport,
            "trace" => Self::Trace,
            "trace-and-kill" => Self::TraceAndKill,
            "starve" => Self::Starve,
            "stop" => Self::Stop,
            "steal-lock" => Self::StealLock,
            _ => return None,
        })
    }
}

/// The leash that a server is on.
pub(crate) struct Leash {
    keeper: Pid,
    supervisor: Pid,
}

impl Leash {
    /// Called by the server itself: the keeper is its parent.
    pub(crate) fn of_this_server() -> io::Result<Self> {
        let keeper = rustix::process::getppid().ok_or_else(|| io::Error::other("no keeper"))?;
        let above = testkit::process::Process::read(keeper).ok_or_else(|| io::Error::other("the keeper is gone"))?;
        let supervisor = Pid::from_raw(above.parent).ok_or_else(|| io::Error::other("no supervisor"))?;
        Ok(Self { keeper, supervisor })
    }

    /// Attacks. Calls `ready` when the attack is done, or when it has begun and continues.
    pub(crate) fn attack(&self, how: Attack, ready: impl FnOnce()) -> io::Result<()> {
        match how {
            Attack::ForgeRecord => {
                let (path, mut record) = wait_for_record()?;
                record["over"] = receipt(&record);
                fs::write(path, record.to_string())?;
                pidfd_send_signal(self.keeper()?, Signal::KILL)?;
            }
            Attack::ForgeOver => self.say(self.keeper, &json!({ "over": receipt(&wait_for_record()?.1) }))?,
            Attack::ForgeReport => {
                // The forged reports come before those of the supervisor, if it has not reported the start yet.
                let supervisor = pidfd_open(self.supervisor, PidfdFlags::empty())?;
                pidfd_send_signal(&supervisor, Signal::STOP)?;
                let record = wait_for_record()?.1;
                self.say(self.supervisor, &failure())?;
                self.say(self.supervisor, &json!({ "over": receipt(&record) }))?;
                pidfd_send_signal(&supervisor, Signal::CONT)?;
            }
            Attack::ForgeFailure => {
                wait_for_record()?;
                self.say(self.keeper, &failure())?;
            }
            Attack::Trace => seize_and_stop(self.keeper)?,
            Attack::TraceAndKill => {
                seize_and_stop(self.keeper)?;
                pidfd_send_signal(self.keeper()?, Signal::KILL)?;
            }
            Attack::Starve => {
                for pid in [self.supervisor, self.keeper] {
                    prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(0), maximum: Some(0) })?;
                }
            }
            Attack::Stop => {
                ready();
                return self.stop_for_ever();
            }
            Attack::StealLock => std::mem::forget(steal(self.keeper, LOCK)?),
        }
        ready();
        Ok(())
    }

    fn keeper(&self) -> io::Result<OwnedFd> {
        Ok(pidfd_open(self.keeper, PidfdFlags::empty())?)
    }

    /// Sends a message through the control socket of `speaker`.
    fn say(&self, speaker: Pid, word: &Value) -> io::Result<()> {
        let socket = steal(speaker, CONTROL)?;
        rustix::net::send(&socket, word.to_string().as_bytes(), rustix::net::SendFlags::empty())?;
        Ok(())
    }

    fn stop_for_ever(&self) -> io::Result<()> {
        let both = [self.keeper()?, pidfd_open(self.supervisor, PidfdFlags::empty())?];
        loop {
            for one in &both {
                let _ = pidfd_send_signal(one.as_fd(), Signal::STOP);
            }
            let _ = rustix::event::poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 1_000_000 }));
        }
    }
}

fn steal(from: Pid, number: i32) -> io::Result<OwnedFd> {
    Ok(pidfd_getfd(pidfd_open(from, PidfdFlags::empty())?, number, PidfdGetfdFlags::empty())?)
}

/// Waits until the server runs, and returns the only record.
fn wait_for_record() -> io::Result<(PathBuf, Value)> {
    let dir = std::env::var_os("LEASH_RUNTIME_DIR").unwrap_or_else(|| OsString::from("."));
    let found = testkit::wait::within(testkit::wait::LIMIT, || {
        let entries = fs::read_dir(PathBuf::from(&dir).join("sessions")).ok()?;
        let path =
            entries.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|e| e == "json"))?;
        let record: Value = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
        (record["phase"] == "running").then_some((path, record))
    });
    found.ok_or_else(|| io::Error::other("there is no record of a running server"))
}

/// The message of a keeper or a supervisor that could not start the server.
fn failure() -> Value {
    json!({ "failed": { "kind": "internal", "what": "it says so", "cause": "it says so" } })
}

/// The receipt that the keeper would write if the tree were gone.
fn receipt(record: &Value) -> Value {
    json!({
        "version": 1, "session": record["session"], "run": record["run"], "name": record["name"],
        "reason": { "kind": "server_exited" }, "containment": record["containment"], "ended_by": "keeper",
        "holdings": [{
            "kind": "tree", "leader": record["leader"], "fate": "gone", "how": "exited", "exit": { "code": 0 },
            "members": 1, "memory_bytes": 0,
        }],
        "started_ms": record["started_ms"], "ended_ms": record["started_ms"], "took_ms": 0,
    })
}
