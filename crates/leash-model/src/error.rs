//! Errors as text.

use std::{error::Error, ffi::OsStr, fmt, io, path::Path};

use serde::{Deserialize, Serialize};

use crate::limits;

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

/// Adds the path to an error of the system, which does not say what it is about.
pub fn at(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("`{}`: {error}", path.display()))
}

/// A path or another text as a message shows it: at most [`limits::FAILURE_TEXT`] bytes. Bytes that are not UTF-8 are
/// replaced.
pub fn shown(text: impl AsRef<OsStr>) -> String {
    let mut text = text.as_ref().to_string_lossy().into_owned();
    if text.len() > limits::FAILURE_TEXT {
        text.truncate(text.floor_char_boundary(limits::FAILURE_TEXT - "...".len()));
        text.push_str("...");
    }
    text
}

/// The cause of a failure, as text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[error("{0}")]
#[serde(transparent)]
pub struct Cause(
    // Text, because an error of the system cannot be sent to another process.
    String,
);

impl Cause {
    /// A cause that displays as `cause` does.
    pub fn new(cause: impl fmt::Display) -> Cause {
        Cause(shown(cause.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_system_gets_its_path() {
        let error = at(Path::new("/x"))(io::Error::from_raw_os_error(13));
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (io::ErrorKind::PermissionDenied, "`/x`: Permission denied (os error 13)")
        );
    }

    #[test]
    fn causes_follow_their_error() {
        let inner = "5x".parse::<i32>().expect_err("it is no number");
        assert_eq!(with_causes(&inner), "invalid digit found in string");
        let outer = std::io::Error::other(inner);
        assert_eq!(with_causes(&outer), "invalid digit found in string");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let check = |text: String, expected: String| assert_eq!(shown(text), expected);
        check("/bin".to_owned(), "/bin".to_owned());
        let most = "x".repeat(limits::FAILURE_TEXT);
        check(most.clone(), most.clone());
        check(most + "x", "x".repeat(limits::FAILURE_TEXT - 3) + "...");
        check("ö".repeat(limits::FAILURE_TEXT), "ö".repeat(limits::FAILURE_TEXT / 2 - 2) + "...");
    }
}
