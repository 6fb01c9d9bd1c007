//! Pins processes to one processor. On several processors, a round trip takes 6 or 60 µs depending on which of them the
//! kernel chose for which process; on one, it takes the time that the programs on its way need.

use std::fs;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::step::{Failure, Outcome};

/// Keeps this thread, the processes that it starts meanwhile, and `others` on one processor while `work` runs.
pub(crate) fn on_one_processor<T>(others: &[Pid], work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    let failed = |error| Failure::new(format!("cannot choose a processor: {error}"));
    let before = sched_getaffinity(None).map_err(failed)?;
    let mut one = CpuSet::new();
    one.set(sched_getcpu());
    sched_setaffinity(None, &one).map_err(failed)?;
    others.iter().for_each(|&pid| place(pid, &one));
    let done = work();
    sched_setaffinity(None, &before).map_err(failed)?;
    others.iter().for_each(|&pid| place(pid, &before));
    done
}

/// Pins every thread of a process. Ignores threads that have exited.
fn place(pid: Pid, on: &CpuSet) {
    let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).into_iter().flatten();
    let numbers = threads.filter_map(|thread| Pid::from_raw(thread.ok()?.file_name().to_str()?.parse().ok()?));
    numbers.for_each(|thread| {
        let _ = sched_setaffinity(Some(thread), on);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_processes_are_pinned_and_released() {
        let mut other =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().expect("there is cat");
        let pid = Pid::from_child(&other);
        let places = |pid: Option<Pid>| sched_getaffinity(pid).expect("it is alive").count();
        let all = places(Some(pid));
        let (ours, its) = on_one_processor(&[pid], || Ok((places(None), places(Some(pid))))).expect("we may choose");
        assert_eq!((ours, its, places(Some(pid))), (1, 1, all));
        drop(other.stdin.take());
        other.wait().expect("it ends with its stdin");
    }
}
