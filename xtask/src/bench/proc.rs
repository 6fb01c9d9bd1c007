//! Memory and processor time of the measured processes, from the kernel.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use testkit::process::children;

use crate::step::{Failure, Outcome};

/// One field of `smaps_rollup`, such as `Pss:`, in kB.
pub(crate) fn kilobytes(pid: Pid, field: &str) -> Outcome<f64> {
    let path = format!("/proc/{}/smaps_rollup", pid.as_raw_nonzero());
    let text = fs::read_to_string(&path).map_err(|error| Failure::new(format!("`{path}`: {error}")))?;
    text.lines()
        .find_map(|line| line.strip_prefix(field)?.trim().strip_suffix(" kB")?.parse().ok())
        .ok_or_else(|| Failure::new(format!("`{path}` has no {field}")))
}

/// The time that the living threads of a process were on a processor, to the nanosecond. The clock ticks of `stat` are
/// too coarse for a quarter of a second.
pub(crate) fn processor_time(pid: Pid) -> Outcome<Duration> {
    let path = format!("/proc/{}/task", pid.as_raw_nonzero());
    let threads = fs::read_dir(&path).map_err(Failure::at(Path::new(&path)))?;
    let nanos = threads.filter_map(|thread| {
        // A thread may exit meanwhile.
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Ok(Duration::from_nanos(nanos.sum()))
}

/// All processes below `pid`, at any depth.
pub(crate) fn descendants(pid: Pid) -> Vec<Pid> {
    let mut found = Vec::new();
    let mut open = vec![pid];
    while let Some(parent) = open.pop() {
        let below: Vec<Pid> = children(parent).iter().map(|child| child.pid).collect();
        open.extend(&below);
        found.extend(below);
    }
    found
}

/// Raises the descriptor limit of this process and its children up to `wanted`, and returns the new limit.
pub(crate) fn raise_descriptors(wanted: u64) -> u64 {
    let now = getrlimit(Resource::Nofile);
    let allowed = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
    if allowed(now.current) >= wanted {
        return wanted;
    }
    // With privilege above the hard limit; without privilege up to it.
    let tries = [wanted.max(allowed(now.maximum)), allowed(now.maximum)];
    for maximum in tries {
        let most = wanted.min(maximum);
        if setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: Some(maximum) }).is_ok() {
            return most;
        }
    }
    allowed(now.current)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_memory_time_and_limit() {
        let us = rustix::process::getpid();
        assert!(kilobytes(us, "Pss:").is_ok_and(|size| size > 0.0));
        assert!(kilobytes(us, "Nonsense:").is_err());
        let before = processor_time(us).expect("we are alive");
        let worked: u64 = (0..5_000_000).map(std::hint::black_box).sum();
        assert!(worked > 0 && processor_time(us).is_ok_and(|after| after > before));
        assert!(raise_descriptors(16) == 16, "the current limit is never lowered");
    }
}
