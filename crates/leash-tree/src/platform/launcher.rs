//! Undoes what Node did to this process, if the JavaScript launcher of the npm package started it. Node raises the limit
//! on open files to the highest value and ignores SIGXFSZ; a server would inherit both.

use std::env;

use rustix::process::{Pid, Resource, Rlimit, Signal, getpid, getppid, getrlimit, set_parent_process_death_signal};

use super::linux;

/// The variable in which the launcher states its pid and the limit on open files before Node raised it.
const VARIABLE: &str = "LEASH_LAUNCHER";

/// The launcher, if one started this process.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NpmLauncher {
    /// The launcher's pid, if it is our parent. A launcher that replaced itself by leash is gone.
    parent: Option<Pid>,
}

impl NpmLauncher {
    /// Reads and removes the variable, and restores the limit and the signal. Call this first in `main`, before
    /// anything else looks at them; the process must have a single thread.
    pub fn undo() -> NpmLauncher {
        let Some(text) = env::var_os(VARIABLE) else { return NpmLauncher::default() };
        linux::remove_variable(VARIABLE);
        // A server may pass the variable of another leash on to us: its pid is neither our parent's nor ours.
        let statement = text.to_str().and_then(Statement::parse);
        let Some(statement) = statement.filter(|it| it.pid == getpid() || getppid() == Some(it.pid)) else {
            return NpmLauncher::default();
        };
        let limit = getrlimit(Resource::Nofile);
        if let Some(files) = statement.files.filter(|files| limit.current.is_none_or(|current| *files < current)) {
            let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(files), ..limit });
        }
        linux::set_default(libc::SIGXFSZ);
        NpmLauncher { parent: Some(statement.pid).filter(|pid| *pid != getpid()) }
    }

    /// Makes the kernel send us SIGTERM when the launcher dies. For commands that do not watch their parent: a launcher
    /// that was killed cannot pass anything on. Returns false if it is dead already.
    #[must_use]
    pub fn end_with_it(self) -> bool {
        let Some(parent) = self.parent else { return true };
        // Looked at after the order, because the kernel does not send the signal for a parent that died before it.
        set_parent_process_death_signal(Some(Signal::TERM)).is_err() || getppid() == Some(parent)
    }
}

/// The content of the variable.
#[derive(Debug, PartialEq, Eq)]
struct Statement {
    pid: Pid,
    /// `None` if the launcher could not find it out.
    files: Option<u64>,
}

impl Statement {
    fn parse(text: &str) -> Option<Statement> {
        let mut words = text.split(' ');
        let pid = Pid::from_raw(words.next()?.parse().ok()?)?;
        Some(Statement { pid, files: words.next().and_then(|word| word.parse().ok()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launcher_states_its_pid_and_the_limit() {
        let parsed = |text| Statement::parse(text).map(|it| (it.pid.as_raw_pid(), it.files));
        for (text, expected) in [
            ("12 1024", Some((12, Some(1024)))),
            ("12 unlimited", Some((12, None))),
            ("12", Some((12, None))),
            ("0 1024", None),
            ("x 1024", None),
            ("", None),
        ] {
            assert_eq!(parsed(text), expected, "{text}");
        }
    }
}
