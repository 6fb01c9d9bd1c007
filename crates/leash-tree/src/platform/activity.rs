//! The work that the processes of a tree have done since their start: processor time, and bytes that they read or wrote.

use super::proc::{Proc, numbers_of_line, read_small};
use leash_model::alive::TreeProcess;

/// The work of a tree. Two equal values mean that the tree did nothing in between: the numbers of a process only grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeActivity(Vec<ProcessActivity>);

/// The work of one process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ProcessActivity {
    pid: i32,
    start: u64,
    /// Processor time of all threads, in clock ticks.
    ticks: u64,
    /// Bytes that it read and wrote, also through pipes.
    bytes: u64,
}

impl TreeActivity {
    /// The work of these processes until now; `None` if there are none, or if one of them can't be read.
    pub fn of(proc: &Proc, processes: &[TreeProcess]) -> Option<TreeActivity> {
        let mut all: Vec<ProcessActivity> =
            processes.iter().map(|process| of_process(proc, process)).collect::<Option<_>>()?;
        all.sort_unstable();
        (!all.is_empty()).then_some(TreeActivity(all))
    }
}

fn of_process(_: &Proc, process: &TreeProcess) -> Option<ProcessActivity> {
    let TreeProcess { pid, start, .. } = *process;
    let ticks = ticks(&read_small(format!("/proc/{pid}/stat"))?)?;
    let count = |name: &str| numbers_of_line::<u64>(&format!("/proc/{pid}/io"), name).first().copied();
    Some(ProcessActivity { pid, start, ticks, bytes: count("rchar:")? + count("wchar:")? })
}

/// Fields 14 and 15 of a `stat` line, `utime` and `stime`. The name, field 2, may contain any characters.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(") ")?.1.split_ascii_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn processor_time_is_read_from_stat() {
        let line = "42 (a) R (b c) S 1 40 39 0 -1 4194560 1 2 3 4 500 60 7 8 20 0 1 0 777 1000 100";
        assert_eq!(ticks(line), Some(560));
        assert_eq!(ticks("42 (x) S 1 2"), None);
    }

    #[test]
    fn written_bytes_change_the_activity() {
        let proc = Proc::own().unwrap();
        let pid = rustix::process::getpid().as_raw_pid();
        let stat = proc.stat(pid).unwrap();
        let (command, memory_bytes) = (String::new(), 0);
        let me = TreeProcess { pid, ppid: stat.ppid, start: stat.start, state: 'S', command, memory_bytes };
        let before = TreeActivity::of(&proc, std::slice::from_ref(&me)).unwrap();
        std::fs::File::create("/dev/null").unwrap().write_all(b"x").unwrap();
        assert_ne!(TreeActivity::of(&proc, std::slice::from_ref(&me)).unwrap(), before);
        assert_eq!(TreeActivity::of(&proc, &[]), None, "no process proves nothing");
        let gone = TreeProcess { pid: i32::MAX, ..me.clone() };
        assert_eq!(TreeActivity::of(&proc, &[me, gone]), None);
    }
}
