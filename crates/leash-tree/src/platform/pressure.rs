//! The memory pressure of the machine, from /proc/pressure/memory and /proc/meminfo.

use std::io;
use std::time::Duration;

use super::proc::{numbers_of_line, try_read};
use leash_model::pressure::MemoryReading;

/// Only kernels that measure pressure have this file (`CONFIG_PSI`, on some systems only with the parameter `psi=1`).
const PRESSURE: &str = "/proc/pressure/memory";

/// Reads the pressure now. An error means that the kernel does not measure it, or that it can't be read.
pub fn read() -> io::Result<MemoryReading> {
    let text = try_read(PRESSURE)?;
    let (average, stalled) = parse(&text).ok_or(io::ErrorKind::InvalidData)?;
    let kib = |name: &str| numbers_of_line::<u64>("/proc/meminfo", name).first().copied().unwrap_or(0);
    Ok(MemoryReading { average, stalled, available: percent(kib("MemAvailable:"), kib("MemTotal:")) })
}

/// The average of ten seconds in hundredths of a percent, and the total, of the line `some`.
fn parse(text: &str) -> Option<(u32, Duration)> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let value = |name: &str| line.split_ascii_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let (whole, hundredths) = value("avg10")?.split_once('.')?;
    let average = whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(hundredths.parse().ok()?)?;
    Some((average, Duration::from_micros(value("total")?.parse().ok()?)))
}

/// The percentage of the memory that is available. A machine that does not say how much it has counts as full.
fn percent(available: u64, total: u64) -> u8 {
    u8::try_from(available.saturating_mul(100) / total.max(1)).unwrap_or(100).min(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_some_is_read() {
        let text =
            "some avg10=12.05 avg60=0.02 avg300=0.00 total=107584009\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=2\n";
        assert_eq!(parse(text), Some((1205, Duration::from_micros(107_584_009))));
        assert_eq!(parse("some avg10=100.00 avg60=0.02 avg300=0.00 total=0"), Some((10000, Duration::ZERO)));
        for text in
            ["", "full avg10=1.00 total=2", "some avg10=x.00 total=2", "some avg10=1.00", "some avg10=1 total=2"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn available_memory_is_a_percentage() {
        for (available, total, expected) in [(0, 100, 0), (249, 1000, 24), (1000, 1000, 100), (5, 1, 100), (0, 0, 0)] {
            assert_eq!(percent(available, total), expected, "{available} of {total}");
        }
    }
}
