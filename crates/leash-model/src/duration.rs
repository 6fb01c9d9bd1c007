//! Durations as people write them: `500ms`, `2s`, `30m`, `12h`, `7d`, and a bare `0`.

use std::time::Duration;

use thiserror::Error;

/// The reason why a text is not a duration.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum DurationError {
    /// The number is missing, negative or not whole.
    #[error("`{0}` does not start with a whole number")]
    NoNumber(String),
    /// The unit is missing.
    #[error("`{0}` has no unit")]
    NoUnit(String),
    /// The unit is unknown.
    #[error("`{0}` has an unknown unit")]
    UnknownUnit(String),
    /// The number does not fit.
    #[error("`{0}` is too long")]
    TooLong(String),
}

/// Reads a duration.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(leash_model::duration::parse("500ms"), Ok(Duration::from_millis(500)));
/// assert_eq!(leash_model::duration::parse("0"), Ok(Duration::ZERO));
/// assert!(leash_model::duration::parse("2").is_err());
/// ```
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(DurationError::NoNumber(text.to_owned()));
    }
    let number: u64 = number.parse().map_err(|_| DurationError::TooLong(text.to_owned()))?;
    let per_unit_ms: u64 = match unit.trim() {
        "" if number == 0 => 1,
        "" => return Err(DurationError::NoUnit(text.to_owned())),
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(DurationError::UnknownUnit(text.to_owned())),
    };
    number.checked_mul(per_unit_ms).map(Duration::from_millis).ok_or_else(|| DurationError::TooLong(text.to_owned()))
}

/// The whole milliseconds of a duration.
pub fn as_ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Writes a duration exactly, in the format that [`parse`] reads.
pub fn exact(span: Duration) -> String {
    let ms = span.as_millis();
    for (unit, per_unit_ms) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)] {
        if ms >= per_unit_ms && ms.is_multiple_of(per_unit_ms) {
            return format!("{}{unit}", ms / per_unit_ms);
        }
    }
    format!("{ms}ms")
}

/// Writes a duration for people: at most two units.
pub fn rough(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 => format!("{}ms", span.as_millis()),
        1..60 => format!("{}.{}s", seconds, span.subsec_millis() / 100),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn valid_durations_are_parsed() {
        for (text, ms) in [
            ("0", 0),
            ("0s", 0),
            ("500ms", 500),
            ("2s", 2_000),
            ("30m", 1_800_000),
            ("1h", 3_600_000),
            ("7d", 604_800_000),
            (" 2 s ", 2_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_refused() {
        for text in ["", "s", "-1s", "1.5s", "2", "2 weeks", "1sx", "99999999999999999999s", "999999999999999999d"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rough_durations_have_two_units_at_most() {
        for (ms, text) in [(3, "3ms"), (2_050, "2.0s"), (61_000, "1m01s"), (3_700_000, "1h01m"), (90_000_000, "1d01h")]
        {
            assert_eq!(rough(Duration::from_millis(ms)), text);
        }
    }

    proptest! {
        #[test]
        fn exact_is_read_back(ms in 0u64..10_000_000_000) {
            let span = Duration::from_millis(ms);
            prop_assert_eq!(parse(&exact(span)), Ok(span));
        }

        #[test]
        fn parse_accepts_any_text_without_panic(text in ".*") {
            let _ = parse(&text);
        }
    }
}
