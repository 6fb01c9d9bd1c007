//! Memory pressure, as pure decisions: how much memory there is, and which tree is stopped next. No clock, no file.

use std::time::Duration;

use crate::clock::Moment;
use crate::limits;

/// A share of time in which some process had to wait for memory, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StallPercent(u8);

impl StallPercent {
    /// The default threshold: see [`limits::PRESSURE`].
    pub const DEFAULT: StallPercent = StallPercent(limits::PRESSURE);

    /// A percentage as users write it: `10` or `10%`.
    pub fn parse(text: &str) -> Result<StallPercent, String> {
        let number = text.strip_suffix('%').unwrap_or(text).parse().ok().filter(|percent| (1..=100).contains(percent));
        number.map(StallPercent).ok_or_else(|| format!("`{text}` is no percentage: write a number from 1 to 100"))
    }
}

impl std::fmt::Display for StallPercent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}%", self.0)
    }
}

/// The memory of the machine at one moment, as the kernel describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryReading {
    /// `some avg10`, the average of the last ten seconds, in hundredths of a percent.
    pub average: u32,
    /// `some total`: the time since boot in which some process had to wait for memory.
    pub stalled: Duration,
    /// The percentage of the memory that programs could still get without swap.
    pub available: u8,
}

/// The memory of the machine, from most to least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryState {
    /// Programs get memory as they need it.
    #[default]
    Enough,
    /// Little is available. Orphans are ended now: when programs have to wait for memory, it may be gone within seconds.
    Low,
    /// Little is available, and programs wait for it. Idle servers that may be stopped are ended, too.
    Short,
}

/// Decides from reading to reading how much memory there is.
#[derive(Clone, Copy, Debug)]
pub struct PressureGauge {
    threshold: StallPercent,
    last: Option<(Moment, Duration)>,
}

impl PressureGauge {
    /// A gauge without a reading.
    pub fn new(threshold: StallPercent) -> PressureGauge {
        PressureGauge { threshold, last: None }
    }

    /// The state at this reading. Memory is short if the average is at the threshold, so it was no short peak; if the time
    /// since the last reading is too, so it has not passed (the average falls slowly); and if little memory is available.
    /// The last one tells a machine without memory from a single tree that its own budget slows down.
    pub fn state(&mut self, reading: MemoryReading, now: Moment) -> MemoryState {
        let last = self.last.replace((now, reading.stalled));
        if reading.available >= limits::ENOUGH_AVAILABLE {
            return MemoryState::Enough;
        }
        let Some((then, before)) = last else { return MemoryState::Low };
        let (passed, stalled) = (now.since(then), reading.stalled.saturating_sub(before));
        let percent = u128::from(self.threshold.0);
        let is_short =
            u128::from(reading.average) >= percent * 100 && stalled.as_micros() * 100 >= passed.as_micros() * percent;
        if is_short { MemoryState::Short } else { MemoryState::Low }
    }
}

/// A tree that may be stopped when memory is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopCandidate<K> {
    /// The caller's name for it.
    pub key: K,
    /// The time for which it must be idle.
    pub after: Duration,
    /// The time for which it has been idle; `None` if it is in use, or if that is not known.
    pub idle: Option<Duration>,
    /// The memory and swap that its end frees, in bytes.
    pub memory: u64,
}

/// The tree to stop next: of those that are idle for long enough the one that frees the most memory, so that few have to be
/// stopped; of equal ones the one that is idle for longest.
pub fn next_to_stop<K>(candidates: Vec<StopCandidate<K>>) -> Option<K> {
    let may_stop = |one: &StopCandidate<K>| one.idle.is_some_and(|idle| idle >= one.after);
    let chosen = candidates.into_iter().filter(may_stop).max_by_key(|one| (one.memory, one.idle));
    chosen.map(|one| one.key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_boot(Duration::from_millis(ms))
    }

    /// Two readings, one second apart. Checks the state at the second.
    fn check(average: u32, stalled_ms: u64, available: u8, expected: MemoryState) {
        let mut gauge = PressureGauge::new(StallPercent::DEFAULT);
        let reading = |stalled_ms| MemoryReading { average, stalled: Duration::from_millis(stalled_ms), available };
        assert!(
            gauge.state(reading(5_000), at(0)) < MemoryState::Short,
            "one reading says nothing about the last second"
        );
        let state = gauge.state(reading(5_000 + stalled_ms), at(1000));
        assert_eq!(state, expected, "average {average}, {stalled_ms} ms, {available}% available");
    }

    #[test]
    fn state_follows_from_average_last_second_and_available_memory() {
        use MemoryState::{Enough, Low, Short};
        check(1000, 100, 5, Short);
        check(9000, 900, 0, Short);
        // A short peak does not reach the average.
        check(999, 900, 5, Low);
        // The average falls slowly after the pressure has passed.
        check(9000, 99, 5, Low);
        check(9000, 0, 5, Low);
        check(0, 0, limits::ENOUGH_AVAILABLE - 1, Low);
        // One tree is slowed down by its own budget, and the machine has memory.
        check(9000, 900, limits::ENOUGH_AVAILABLE, Enough);
        check(9000, 900, limits::ENOUGH_AVAILABLE - 1, Short);
        check(0, 0, 100, Enough);
    }

    #[test]
    fn stalled_time_is_compared_with_the_time_since_the_last_reading() {
        let mut gauge = PressureGauge::new(StallPercent(50));
        let reading =
            |stalled_ms| MemoryReading { average: 9000, stalled: Duration::from_millis(stalled_ms), available: 1 };
        for (ms, stalled_ms, expected) in [
            (0, 0, false),
            (1000, 500, true),
            (3000, 1400, false),
            (4000, 1900, true),
            (4000, 1900, true),
            (5000, 0, false),
        ] {
            assert_eq!(gauge.state(reading(stalled_ms), at(ms)) == MemoryState::Short, expected, "at {ms}");
        }
    }

    #[test]
    fn percentages_have_a_range() {
        for (text, expected) in [("10", Some(10)), ("10%", Some(10)), ("1", Some(1)), ("100", Some(100)), ("0", None)] {
            assert_eq!(StallPercent::parse(text).ok(), expected.map(StallPercent), "{text}");
        }
        for text in ["", "%", "101", "-1", "1.5", "ten"] {
            assert!(StallPercent::parse(text).is_err(), "{text}");
        }
        assert_eq!(StallPercent::DEFAULT.to_string(), "10%");
    }

    /// Candidates are (seconds that it must be idle, seconds that it is idle, memory); the result is the position.
    fn check_next(candidates: &[(u64, Option<u64>, u64)], expected: Option<usize>) {
        let candidate = |(key, (after, idle, memory)): (usize, &(u64, Option<u64>, u64))| StopCandidate {
            key,
            after: Duration::from_secs(*after),
            idle: idle.map(Duration::from_secs),
            memory: *memory,
        };
        assert_eq!(next_to_stop(candidates.iter().enumerate().map(candidate).collect()), expected, "{candidates:?}");
    }

    #[test]
    fn largest_idle_tree_is_stopped_first() {
        check_next(&[], None);
        check_next(&[(300, None, 900)], None);
        check_next(&[(300, Some(299), 900)], None);
        check_next(&[(300, Some(300), 900)], Some(0));
        // A busy tree stays, however large it is.
        check_next(&[(300, None, 900), (300, Some(400), 1)], Some(1));
        // Each tree has its own idle time.
        check_next(&[(600, Some(500), 900), (300, Some(400), 1)], Some(1));
        check_next(&[(300, Some(999), 5), (300, Some(400), 7), (300, Some(500), 6)], Some(1));
        check_next(&[(300, Some(400), 5), (300, Some(500), 5), (300, Some(301), 5)], Some(1));
        check_next(&[(0, Some(0), 0)], Some(0));
    }
}
