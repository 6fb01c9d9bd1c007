//! The census: tells which processes of a tree are alive, without any code of leash. Every process of the zoo holds the
//! write end of a FIFO from its first instruction; the reader sees a hang-up when the last of them is dead.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::{Pid, Signal};

use crate::process::{self, Handle, Process, Survivors};
use crate::wait::{self, Deadline};

/// The reader of the FIFO.
#[derive(Debug)]
pub struct Census {
    path: PathBuf,
    reader: OwnedFd,
    identity: (u64, u64),
    heard: Vec<u8>,
}

impl Census {
    /// Makes the FIFO as `path`, open to every user.
    pub fn create(path: PathBuf) -> Self {
        rustix::fs::mkfifoat(CWD, &path, Mode::from_raw_mode(0o622)).expect("cannot make a FIFO");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o622)).expect("cannot open the FIFO to all");
        let reader = open(&path, OFlags::RDONLY).expect("cannot open the FIFO");
        let meta = fs::metadata(&path).expect("the FIFO was just made");
        Self { path, reader, identity: (meta.dev(), meta.ino()), heard: Vec::new() }
    }

    /// The path to give to `zoo tree --census`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until the tree reports that it is complete, and returns its number of processes. The error is the text
    /// that was read instead within `limit`.
    pub fn wait_ready(&mut self, limit: Duration) -> Result<usize, String> {
        self.wait_line(limit, |line| line.strip_prefix("ready ")?.parse().ok())
    }

    /// Waits until `trees` trees have reported that they are complete.
    pub fn wait_all_ready(&mut self, trees: usize, limit: Duration) -> Result<(), String> {
        self.wait_text(limit, |text| {
            let ready = text.lines().filter(|line| line.starts_with("ready ")).count();
            (ready >= trees).then_some(())
        })
    }

    /// Waits until some process of the tree exists.
    pub fn wait_first(&mut self, limit: Duration) -> Result<(), String> {
        self.wait_line(limit, |_| Some(()))
    }

    fn wait_line<T>(&mut self, limit: Duration, wanted: impl Fn(&str) -> Option<T>) -> Result<T, String> {
        self.wait_text(limit, |text| text.lines().find_map(&wanted))
    }

    fn wait_text<T>(&mut self, limit: Duration, wanted: impl Fn(&str) -> Option<T>) -> Result<T, String> {
        let deadline = Deadline::after(limit);
        loop {
            self.listen();
            let text = String::from_utf8_lossy(&self.heard);
            if let Some(found) = wanted(&text) {
                return Ok(found);
            }
            if deadline.is_over() {
                return Err(text.into_owned());
            }
            if self.is_silent() {
                // No process holds the FIFO, so poll would return at once without anything to read.
                wait::step(Duration::from_millis(1));
            } else {
                wait::ready(&self.reader, PollFlags::IN, deadline.left());
            }
        }
    }

    /// Forgets the lines so far: for the next tree in the same census.
    pub fn forget(&mut self) {
        self.listen();
        self.heard.clear();
    }

    /// True if the FIFO is hung up now.
    fn is_silent(&self) -> bool {
        wait::ready(&self.reader, PollFlags::empty(), Duration::ZERO)
    }

    /// Reads all available lines.
    fn listen(&mut self) {
        let mut buffer = [0; 4096];
        while let Ok(got @ 1..) = rustix::io::read(&self.reader, &mut buffer) {
            self.heard.extend_from_slice(&buffer[..got]);
        }
    }

    /// Waits until no process holds the FIFO.
    pub fn wait_gone(&self, limit: Duration) -> Result<(), Survivors> {
        // A FIFO that no process ever opened does not hang up: opening and closing it here makes sure that one did.
        drop(open(&self.path, OFlags::WRONLY));
        if wait::ready(&self.reader, PollFlags::empty(), limit) {
            return Ok(());
        }
        Err(Survivors { seen_by: "the census FIFO", processes: self.holders() })
    }

    /// True if a process holds the FIFO.
    pub fn is_populated(&self) -> bool {
        self.wait_gone(Duration::ZERO).is_err()
    }

    /// The leader of the tree, identified by the name that it gave itself.
    pub fn leader(&self) -> Option<Handle> {
        process::all()
            .into_iter()
            .filter_map(Process::read)
            .filter(|process| process.name == "zoo-leader" && self.is_held_by(process.pid))
            .find_map(|found| Handle::open(found.pid, |now| now.start == found.start))
    }

    /// The processes that hold the FIFO now, without this one.
    pub fn holders(&self) -> Vec<Process> {
        process::all()
            .into_iter()
            .filter(|&pid| pid != rustix::process::getpid() && self.is_held_by(pid))
            .filter_map(Process::read)
            .filter(Process::is_alive)
            .collect()
    }

    fn is_held_by(&self, pid: Pid) -> bool {
        // `/proc/PID/fd` shows the descriptors of the main thread, which are gone if that thread has exited.
        let main = format!("/proc/{}", pid.as_raw_nonzero());
        self.is_held_in(&main) || {
            let process = Process::read(pid);
            process.is_some_and(|process| process.dir() != main && self.is_held_in(&process.dir()))
        }
    }

    fn is_held_in(&self, dir: &str) -> bool {
        let files = fs::read_dir(format!("{dir}/fd")).into_iter().flatten();
        let identity = |file: std::io::Result<fs::DirEntry>| fs::metadata(file.ok()?.path()).ok();
        files.filter_map(identity).any(|meta| (meta.dev(), meta.ino()) == self.identity)
    }

    /// Kills the processes that hold the FIFO, until none does: cleans up after a failing test.
    pub fn kill(&self) {
        let done = wait::within(Duration::from_secs(10), || {
            if !self.is_populated() {
                return Some(());
            }
            for held in self.holders() {
                // The pidfd is opened first and the process checked again after that, so it is the same process.
                if let Some(handle) = Handle::open(held.pid, |_| self.is_held_by(held.pid)) {
                    let _ = handle.signal(Signal::KILL);
                }
            }
            None
        });
        if done.is_none() {
            crate::note("the census could not be cleared");
        }
    }
}

impl Drop for Census {
    fn drop(&mut self) {
        self.kill();
    }
}

fn open(path: &Path, mode: OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, mode | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
}
