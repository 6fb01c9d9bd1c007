//! The pauses before a broken stream is requested again.

use std::time::Duration;

use leash_model::limits;

/// The pauses between tries: first as long as the server asked for, then twice as long after every failure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackOff {
    /// The pause that the server asked for last.
    base: Duration,
    failures: u32,
}

impl Default for BackOff {
    fn default() -> BackOff {
        BackOff { base: limits::RECONNECT, failures: 0 }
    }
}

impl BackOff {
    /// Sets the pause that the server asked for (`retry:`).
    pub(crate) fn asked(&mut self, milliseconds: u64) {
        // Never 0: with a stream that ends after every event, leash would reconnect in a busy loop.
        self.base = Duration::from_millis(milliseconds).clamp(limits::RETRY_SHORTEST, limits::RETRY_LONGEST);
    }

    /// Records that an event came: the next pause is the first one again.
    pub(crate) fn worked(&mut self) {
        self.failures = 0;
    }

    /// Returns the pause before the next try.
    pub(crate) fn next(&mut self) -> Duration {
        // Doubling a very short pause would keep it short for long.
        let base = if self.failures == 0 { self.base } else { self.base.max(limits::RECONNECT) };
        let longest = limits::RECONNECT_LONGEST.max(self.base);
        let pause = base.saturating_mul(2_u32.saturating_pow(self.failures.min(16))).min(longest);
        self.failures += 1;
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(mut back_off: BackOff, count: usize) -> Vec<u128> {
        (0..count).map(|_| back_off.next().as_millis()).collect()
    }

    #[test]
    fn pauses_grow_to_half_a_minute() {
        assert_eq!(pauses(BackOff::default(), 7), [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
    }

    #[test]
    fn pause_follows_the_server_within_limits() {
        let mut quick = BackOff::default();
        quick.asked(0);
        assert_eq!(pauses(quick, 4), [100, 2000, 4000, 8000]);
        let mut slow = BackOff::default();
        slow.asked(120_000);
        assert_eq!(pauses(slow, 2), [120_000, 120_000]);
        slow.asked(u64::MAX);
        assert_eq!(pauses(slow, 1), [limits::RETRY_LONGEST.as_millis()]);
    }

    #[test]
    fn success_resets_the_pause() {
        let mut back_off = BackOff::default();
        back_off.asked(500);
        assert_eq!([back_off.next(), back_off.next()].map(|pause| pause.as_millis()), [500, 2000]);
        back_off.worked();
        assert_eq!(back_off.next().as_millis(), 500);
    }

    #[test]
    fn failures_do_not_overflow() {
        let mut back_off = BackOff { base: Duration::from_secs(1), failures: u32::MAX - 1 };
        assert_eq!(back_off.next(), limits::RECONNECT_LONGEST);
    }
}
