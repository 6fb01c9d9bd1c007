//! Errors as text.

use std::error::Error;

/// An error and its causes, on one line.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_follow_their_error() {
        let inner = "5x".parse::<i32>().expect_err("it is no number");
        assert_eq!(with_causes(&inner), "invalid digit found in string");
        let outer = std::io::Error::other(inner);
        assert_eq!(with_causes(&outer), "invalid digit found in string");
    }
}
