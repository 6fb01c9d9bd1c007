//! The directory in /proc from which a process is read, and the test whether it is dead.

use std::collections::{BTreeMap, HashSet};
use std::fs;

use leash_tree::platform::proc::read_small;

/// True if the state letter and the number of threads mean that a process is dead. The first thread of a process may
/// exit before the others: then the state is that of a zombie, although the process still runs.
pub(crate) fn is_dead(state: char, threads: u64) -> bool {
    matches!(state, 'X' | 'x') || state == 'Z' && threads <= 1
}

/// The directory in /proc that shows the arguments, descriptors and environment of a process. If its first thread has
/// exited, that is the directory of another thread, because `/proc/PID` then shows none of them.
pub(crate) fn of(pid: i32, state: char) -> String {
    let process = format!("/proc/{pid}");
    if state != 'Z' {
        return process;
    }
    let tasks = fs::read_dir(format!("{process}/task")).into_iter().flatten().flatten();
    let mut tasks =
        tasks.filter_map(|entry| entry.file_name().into_string().ok()).map(|task| format!("{process}/task/{task}"));
    tasks.find(|task| lives(task)).unwrap_or(process)
}

/// The arguments of a process; empty when they can't be read.
pub(crate) fn arguments(dir: &str) -> Vec<String> {
    let raw = fs::read(format!("{dir}/cmdline")).unwrap_or_default();
    words(&raw)
}

/// The words of a `cmdline` file, each of which ends with a NUL.
pub(super) fn words(raw: &[u8]) -> Vec<String> {
    let end = raw.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let words = raw[..end].split(|&byte| byte == 0).filter(|_| end > 0);
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Some variables of a process's environment; `None` when it can't be read.
pub(super) fn environment(dir: &str, variables: &HashSet<&str>) -> Option<BTreeMap<String, String>> {
    let environ = fs::read(format!("{dir}/environ")).ok()?;
    let pair = |entry: &[u8]| {
        let entry = std::str::from_utf8(entry).ok()?;
        let (name, value) = entry.split_once('=')?;
        variables.contains(name).then(|| (name.to_owned(), value.to_owned()))
    };
    Some(environ.split(|&byte| byte == 0).filter_map(pair).collect())
}

/// Bytes in swap.
pub(super) fn swap(pid: i32) -> u64 {
    let status = read_small(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSwap:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().map_or(0, |kib| kib * 1024)
}

/// True if a thread has not exited.
fn lives(task: &str) -> bool {
    let stat = read_small(format!("{task}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X' | 'x'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zombie_with_threads_lives() {
        for (state, threads, dead) in [('S', 1, false), ('Z', 1, true), ('Z', 0, true), ('Z', 2, false), ('X', 2, true)]
        {
            assert_eq!(is_dead(state, threads), dead, "{state} {threads}");
        }
    }

    #[test]
    fn a_process_is_read_by_its_pid() {
        assert_eq!(of(7, 'S'), "/proc/7");
        let me = rustix::process::getpid().as_raw_pid();
        assert!(of(me, 'Z').starts_with(&format!("/proc/{me}/task/")));
    }
}
