//! The error for requests that a server did not answer because it exited.

use serde_json::{Value, json};

use leash_model::receipt::{Exit, signal_name};

/// An error that leash answers in a server's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnansweredError {
    pub(super) message: String,
    pub(super) data: Option<Value>,
}

impl<T: Into<String>> From<T> for UnansweredError {
    fn from(message: T) -> UnansweredError {
        UnansweredError { message: message.into(), data: None }
    }
}

impl UnansweredError {
    /// The error after the exit of a server: how it exited, if that is known, and its last lines of stderr.
    pub(super) fn exited(server: &str, exit: Option<Exit>, stderr: &[String]) -> UnansweredError {
        let how = match exit {
            Some(Exit::Code(code)) => format!("exited with code {code}"),
            Some(Exit::Signal(signal)) => format!("was ended by {}", signal_name(signal)),
            None => "exited".to_owned(),
        };
        let why = match stderr.last() {
            Some(line) => format!("its stderr ends with: {line}"),
            None => "it wrote nothing to stderr; run its command in a terminal to see why".to_owned(),
        };
        let message = format!("the server `{server}` {how} before it answered; {why}");
        UnansweredError { message, data: Some(json!({ "exit": exit, "stderr": stderr })) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_says_how_the_server_exited_and_why() {
        let check = |exit, stderr: &[&str], text: &str| {
            let stderr: Vec<String> = stderr.iter().map(|line| (*line).to_owned()).collect();
            let error = UnansweredError::exited("x", exit, &stderr);
            assert_eq!(error.message, text);
            assert_eq!(error.data, Some(json!({ "exit": exit, "stderr": stderr })));
        };
        let by_hand = "it wrote nothing to stderr; run its command in a terminal to see why";
        check(
            Some(Exit::Code(3)),
            &["a", "no key"],
            "the server `x` exited with code 3 before it answered; its stderr ends with: no key",
        );
        check(
            Some(Exit::Signal(9)),
            &[],
            &format!("the server `x` was ended by SIGKILL before it answered; {by_hand}"),
        );
        check(None, &[], &format!("the server `x` exited before it answered; {by_hand}"));
    }
}
