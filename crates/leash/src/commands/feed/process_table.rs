//! The numbers of all processes, by which leash knows whether one has begun or ended.

use leash_tree::platform::proc::{Proc, read_small};

/// The numbers of all processes, and the last number that was given to one. The second tells a process that took the
/// number of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProcessTable {
    numbers: Vec<i32>,
    last: Option<u64>,
}

impl ProcessTable {
    pub(super) fn read(proc: &Proc) -> ProcessTable {
        let last = read_small("/proc/loadavg").as_deref().and_then(last_number);
        let mut numbers = proc.numbers().found;
        numbers.sort_unstable();
        ProcessTable { numbers, last }
    }
}

/// The last field of `/proc/loadavg`.
fn last_number(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_number_is_the_last_field() {
        assert_eq!(last_number("0.20 0.18 0.12 1/80 11206\n"), Some(11206));
        assert_eq!(last_number(""), None);
    }

    #[test]
    fn new_thread_changes_the_table() {
        let proc = Proc::own().expect("a /proc");
        let before = ProcessTable::read(&proc);
        assert!(before.numbers.contains(&rustix::process::getpid().as_raw_pid()));
        std::thread::scope(|scope| scope.spawn(|| ()).join().expect("it ends"));
        assert_ne!(ProcessTable::read(&proc), before);
    }
}
