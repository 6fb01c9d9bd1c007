//! JSON numbers by their value: `100`, `1e2` and `100.0` are the same number.

use std::borrow::Cow;

/// The most digits with which the canonical form of a whole number has no exponent: servers write such numbers out.
const WRITTEN_OUT: i128 = 40;

/// The canonical form of the JSON number `text`. Equal values have equal forms, exactly: no digit is rounded away. An
/// exponent that does not fit into 64 bits is compared as it is written.
pub(super) fn canonical(text: &str) -> Cow<'_, str> {
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(unsigned) => ("-", unsigned),
        None => ("", text),
    };
    let plain = unsigned.bytes().all(|byte| byte.is_ascii_digit());
    if plain && unsigned.len() as i128 <= WRITTEN_OUT {
        return if unsigned == "0" { Cow::Borrowed(unsigned) } else { Cow::Borrowed(text) };
    }
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = [whole, fraction].concat();
    let digits = all.trim_start_matches('0').trim_end_matches('0');
    if digits.is_empty() {
        return Cow::Borrowed("0");
    }
    let Ok(exponent) = exponent.parse::<i64>() else { return Cow::Borrowed(text) };
    let zeros = all.len() - all.trim_end_matches('0').len();
    let exponent = i128::from(exponent) - fraction.len() as i128 + zeros as i128;
    if exponent >= 0 && digits.len() as i128 + exponent <= WRITTEN_OUT {
        let zeros = "0".repeat(usize::try_from(exponent).unwrap_or_default());
        return Cow::Owned(format!("{sign}{digits}{zeros}"));
    }
    Cow::Owned(format!("{sign}{digits}e{exponent}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expected: &str, written: &[&str]) {
        for text in written {
            assert_eq!(canonical(text), expected, "{text}");
        }
    }

    #[test]
    fn equal_values_have_one_form() {
        check("0", &["0", "-0", "0.0", "-0.000", "0e5", "-0E-7", "0e99999999999999999999"]);
        check("100", &["100", "1e2", "1E+2", "10.0e1", "100.000", "0.1e3", "1000e-1", "1e0000000000000000000000002"]);
        check("-15", &["-15", "-1.5e1", "-150E-1"]);
        check("15e-1", &["1.5", "15e-1", "0.15E1", "1.50"]);
        check("1e400", &["1E400", "1e+400", "10e399", "0.1e401"]);
    }

    #[test]
    fn no_digit_is_rounded_away() {
        let forms =
            ["9007199254740992", "9007199254740993", "18446744073709551617", "18446744073709551616", "1e309", "1e310"];
        for (at, one) in forms.iter().enumerate() {
            for other in &forms[at + 1..] {
                assert_ne!(canonical(one), canonical(other), "{one} and {other}");
            }
        }
        let long = format!("1{}", "0".repeat(60));
        check("1e60", &[&long, "1e60", "10e59"]);
        let exact = format!("{}1", "9".repeat(60));
        assert_ne!(canonical(&exact), canonical(&format!("{}2", "9".repeat(60))));
    }

    #[test]
    fn an_exponent_beyond_64_bits_is_compared_as_written() {
        check("1e99999999999999999999", &["1e99999999999999999999"]);
        assert_ne!(canonical("1e99999999999999999999"), canonical("1e99999999999999999998"));
        check("1e9223372036854775808", &["10e9223372036854775807"]);
    }
}
