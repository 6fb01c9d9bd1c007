//! Runs a program that starts many others, and makes sure that nothing of it is left when it ends, fails or is
//! interrupted.

use std::collections::HashSet;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, set_child_subreaper};
use testkit::cgroup::Outer;
use testkit::process::{Handle, children};
use testkit::wait;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::step::{Failure, Outcome, Step, say};

/// The time that leash and similar programs need to exit by themselves after their owner is gone.
const GRACE: Duration = Duration::from_secs(3);

/// Far beyond the time that it takes to kill some thousand processes.
const LIMIT: Duration = Duration::from_secs(20);

/// Runs `step` to its end, or until a signal asks us to stop. Then ends everything that it has started, and removes its
/// files.
pub(crate) fn run(step: Step) -> Outcome {
    let shown = step.shown();
    let dir = Directory::create()?;
    let pen = Pen::build()?;
    let mut command = step.command();
    command.env("TMPDIR", &dir.0);
    if let Pen::Cgroup(outer) = &pen {
        let join = outer.join().map_err(|error| Failure::new(format!("no cgroup for `{shown}`: {error}")))?;
        testkit::sys::prepare(&mut command, vec![join]);
    }
    let failed = |error: std::io::Error| Failure::new(format!("cannot run `{shown}`: {error}"));
    let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let ended = runtime.block_on(async {
        // The signal handlers are set before anything is started.
        let mut asked = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
            .into_iter()
            .map(signal)
            .collect::<std::io::Result<Vec<_>>>()?;
        let mut died = signal(SignalKind::child())?;
        let [interrupt, terminate, hangup] = &mut asked[..] else { unreachable!("as many as there are above") };
        let mut child = command.spawn()?;
        loop {
            tokio::select! {
                _ = interrupt.recv() => return stop(&mut child).map(|()| None),
                _ = terminate.recv() => return stop(&mut child).map(|()| None),
                _ = hangup.recv() => return stop(&mut child).map(|()| None),
                _ = died.recv() => if let Some(status) = pen.collect(&mut child)? {
                    return Ok(Some(status));
                },
            }
        }
    });
    let left = pen.empty();
    match ended.map_err(failed)? {
        None => Err(Failure::new(format!("interrupted; {left} processes were ended with it"))),
        Some(status) if !status.success() => Err(Failure::new(format!("`{shown}` failed: {status}"))),
        Some(_) => {
            if left > 0 {
                say("Left", format!("{left} processes, which were killed"));
            }
            Ok(())
        }
    }
}

fn stop(child: &mut Child) -> std::io::Result<()> {
    say("Stopping", "everything that was started");
    child.kill()?;
    child.wait().map(drop)
}

/// A container that no process can leave.
enum Pen {
    Cgroup(Outer),
    /// Without a cgroup, orphans become our children.
    Descent,
}

impl Pen {
    fn build() -> Outcome<Self> {
        match Outer::create() {
            Ok(outer) => Ok(Self::Cgroup(outer)),
            Err(_) => set_child_subreaper(Some(rustix::process::getpid()))
                .map(|()| Self::Descent)
                .map_err(|error| Failure::new(format!("orphans could get away: {error}"))),
        }
    }

    /// Reaps dead children. Returns the status of `child`, if it is among them.
    fn collect(&self, child: &mut Child) -> std::io::Result<Option<ExitStatus>> {
        let Self::Descent = self else {
            return child.try_wait();
        };
        let wanted = Pid::from_child(child);
        while let Some((pid, status)) = collected() {
            if pid == wanted {
                return Ok(Some(ExitStatus::from_raw(status.as_raw())));
            }
        }
        Ok(None)
    }

    /// Waits a little for the remaining processes, kills the rest, and returns their number.
    fn empty(&self) -> usize {
        let rest = || match self {
            Self::Cgroup(outer) => outer.processes(),
            Self::Descent => {
                while collected().is_some() {}
                children(rustix::process::getpid())
            }
        };
        if wait::within(GRACE, || rest().is_empty().then_some(())).is_some() {
            return 0;
        }
        let mut killed = HashSet::new();
        // Top down: a process whose parent was killed is our child in the next round.
        let _ = wait::within(LIMIT, || {
            let found = rest();
            for process in &found {
                killed.insert((process.pid, process.start));
                let handle = Handle::open(process.pid, |now| now.start == process.start);
                let _ = handle.map(|handle| handle.signal(Signal::KILL));
            }
            found.is_empty().then_some(())
        });
        killed.len()
    }
}

/// Reaps one dead child.
fn collected() -> Option<(Pid, rustix::process::WaitStatus)> {
    rustix::process::wait(WaitOptions::NOHANG).ok().flatten()
}

/// The directory for the files of all started programs. Its name is short, because it contains sockets.
struct Directory(PathBuf);

impl Directory {
    fn create() -> Outcome<Self> {
        let dir = std::env::temp_dir().join(format!("lx-{:08x}", testkit::random() as u32));
        fs::create_dir(&dir).map_err(Failure::at(&dir))?;
        Ok(Self(dir))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A process that was just killed may still need a moment to exit.
        let gone = wait::within(GRACE, || {
            let _ = fs::remove_dir_all(&self.0);
            (!self.0.exists()).then_some(())
        });
        if gone.is_none() {
            say("Left", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Step {
        Step::new("sh").args(["-c", script])
    }

    #[test]
    fn remaining_processes_are_ended_and_the_failure_is_reported() {
        let note = std::env::temp_dir().join(testkit::unique("ward"));
        let script = format!(
            "setsid sh -c 'trap \"\" TERM HUP; sleep 1000 & wait' & echo $TMPDIR $! > {}; exit 3",
            note.display()
        );
        let failure = run(sh(&script)).expect_err("it ends with 3").to_string();
        assert!(failure.contains("exit status: 3"), "{failure}");
        let text = fs::read_to_string(&note).expect("it was written");
        let (dir, pid) = text.trim().split_once(' ').expect("two words");
        let pid = pid.parse().ok().and_then(Pid::from_raw).expect("a number");
        assert!(testkit::process::Process::read(pid).is_none_or(|process| !process.is_alive()));
        assert!(!std::path::Path::new(dir).exists());
        fs::remove_file(&note).expect("it is ours");
    }

    #[test]
    fn successful_program_is_a_success() {
        run(sh("exit 0")).unwrap_or_else(|why| panic!("{why}"));
    }
}
