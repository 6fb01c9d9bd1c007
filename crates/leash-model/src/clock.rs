//! The clocks of leash: one monotonic clock for every deadline, the wall clock only for times that people read.
//!
//! `std::time::Instant` is banned so that machines take the time as an argument and a test can pass any. The clock is
//! `CLOCK_MONOTONIC`: a jump of the wall clock changes no deadline, and time spent in suspend does not count.

use std::ops::{Add, Sub};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::duration;

/// A point on the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// The current moment.
    pub fn now() -> Moment {
        let now = clock_gettime(ClockId::Monotonic);
        // The monotonic clock starts at boot and is never negative.
        Moment(Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs().min(999_999_999) as u32))
    }

    /// The current moment by the clock of the tokio runtime, for code that runs on one. It is the same clock, except in a
    /// test that pauses it.
    #[cfg(feature = "tokio")]
    pub fn on_runtime() -> Moment {
        static FIRST: std::sync::OnceLock<(Moment, tokio::time::Instant)> = std::sync::OnceLock::new();
        let (moment, instant) = FIRST.get_or_init(|| (Moment::now(), tokio::time::Instant::now()));
        *moment + tokio::time::Instant::now().saturating_duration_since(*instant)
    }

    /// The time `since_boot` after the clock's zero; for tests and for records.
    pub const fn from_boot(since_boot: Duration) -> Moment {
        Moment(since_boot)
    }

    /// The time passed since `earlier`; zero if `earlier` is in the future.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;
    fn add(self, span: Duration) -> Moment {
        Moment(self.0.saturating_add(span))
    }
}

impl Sub<Moment> for Moment {
    type Output = Duration;
    fn sub(self, earlier: Moment) -> Duration {
        self.since(earlier)
    }
}

/// A poll timeout that ends at `deadline`, rounded up, so that poll never wakes up too early.
pub fn timeout_until(deadline: Moment, now: Moment) -> Timespec {
    // poll(2) takes a signed number of seconds; a year is long enough for any deadline here.
    let left = deadline.since(now).min(Duration::from_secs(366 * 24 * 3600));
    Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
}

/// Milliseconds since boot, time in suspend included.
pub fn since_boot_ms() -> u64 {
    let since = clock_gettime(ClockId::Boottime);
    since.tv_sec.unsigned_abs() * 1000 + since.tv_nsec.unsigned_abs() / 1_000_000
}

/// A time that people read, in UTC: `2026-11-17T21:49:09.123Z`.
pub fn utc(unix_ms: u64) -> String {
    let (days, ms) = (unix_ms / 86_400_000, unix_ms % 86_400_000);
    // The civil calendar repeats every 400 years, which are 146,097 days. Years are counted from March, so that the leap
    // day is the last day of a year.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (year, day) = (year + era * 400 + u64::from(month >= 10), day - (153 * month + 2) / 5 + 1);
    let month = if month < 10 { month + 3 } else { month - 9 };
    let (hours, minutes, seconds, ms) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{ms:03}Z")
}

/// Milliseconds since 1970, for records and receipts that people read.
pub fn unix_ms() -> u64 {
    duration::as_ms(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected texts are those of `date -u`.
    #[test]
    fn a_time_is_shown_in_utc() {
        for (unix_ms, shown) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_763_416_149_123, "2025-11-17T21:49:09.123Z"),
            (1_798_761_599_000, "2026-12-31T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(utc(unix_ms), shown);
        }
    }
}
