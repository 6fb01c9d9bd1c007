//! Reads the input of a host's hook from stdin: the session that has ended.

use std::io::{self, IsTerminal as _, Read};

use serde::Deserialize;

/// The input limit. The input of a session-end hook has some hundred bytes.
const LONGEST: u64 = 1024 * 1024;

/// Reasons with which a host leaves a conversation and continues with the same servers.
const GOES_ON: [&str; 2] = ["clear", "resume"];

/// The fields that leash needs; all others belong to the host.
#[derive(Deserialize)]
struct HookInput {
    #[serde(alias = "sessionId")]
    session_id: String,
    #[serde(default)]
    reason: Option<String>,
}

/// The meaning of a hook's input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HookMeaning {
    /// This session has ended.
    Over(String),
    /// The host continues, for this reason.
    GoesOn(String),
}

/// Reads stdin. The error describes the problem with the input.
pub(super) fn read_stdin() -> Result<HookMeaning, String> {
    if io::stdin().is_terminal() {
        return Err("--hook reads what a host's hook gets on stdin, and stdin is a terminal".to_owned());
    }
    read(io::stdin().lock())
}

fn read(input: impl Read) -> Result<HookMeaning, String> {
    // Read one value, not all of stdin: a host may leave the pipe open.
    let mut values = serde_json::Deserializer::from_reader(input.take(LONGEST)).into_iter::<HookInput>();
    let HookInput { session_id, reason } = match values.next() {
        Some(Ok(input)) => input,
        Some(Err(error)) => return Err(format!("stdin is not the input of a hook: {error}")),
        None => return Err("stdin is not the input of a hook: it is empty".to_owned()),
    };
    leash_model::id::check_session(&session_id).map_err(|why| format!("the hook's session_id is not an id: {why}"))?;
    match reason.filter(|reason| GOES_ON.contains(&reason.as_str())) {
        Some(reason) => Ok(HookMeaning::GoesOn(reason)),
        None => Ok(HookMeaning::Over(session_id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<HookMeaning, &str>) {
        match (read(text.as_bytes()), expected) {
            (Ok(read), Ok(expected)) => assert_eq!(read, expected, "{text}"),
            (Err(error), Err(why)) => assert!(error.contains(why), "{text}: {error}"),
            (read, expected) => panic!("{text}: {read:?}, not {expected:?}"),
        }
    }

    #[test]
    fn the_session_id_is_read() {
        let over = |id: &str| Ok(HookMeaning::Over(id.to_owned()));
        check(r#"{"session_id":"a-1"}"#, over("a-1"));
        check(r#"{"sessionId":"a-1","cwd":"/x"}"#, over("a-1"));
        for reason in ["logout", "prompt_input_exit", "bypass_permissions_disabled", "other", "something new"] {
            check(
                &format!(r#"{{"session_id":"a-1","hook_event_name":"SessionEnd","reason":"{reason}"}}"#),
                over("a-1"),
            );
        }
    }

    #[test]
    fn a_host_that_continues_keeps_its_servers() {
        for reason in GOES_ON {
            let text = format!(r#"{{"session_id":"a-1","reason":"{reason}"}}"#);
            check(&text, Ok(HookMeaning::GoesOn(reason.to_owned())));
        }
    }

    #[test]
    fn input_that_is_not_from_a_hook_is_refused() {
        check("", Err("empty"));
        check("job-1", Err("not the input of a hook"));
        check("{}", Err("session_id"));
        check(r#"{"session_id":7}"#, Err("not the input of a hook"));
        check(r#"{"session_id":""}"#, Err("not an id: it is empty"));
        check(r#"{"session_id":"a b"}"#, Err("not an id"));
    }

    /// After the complete value, the reader does not wait for more input.
    #[test]
    fn the_end_of_stdin_is_not_waited_for() {
        struct Endless<'a>(&'a [u8]);
        impl Read for Endless<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                assert!(!self.0.is_empty(), "stdin was read after the value was complete");
                self.0.read(buffer)
            }
        }
        assert_eq!(read(Endless(br#"{"session_id":"a-1"}"#)), Ok(HookMeaning::Over("a-1".to_owned())));
    }
}
