//! `leash attach`, as typed.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use super::values::{self, OwnerArg, Pair};

/// Give a stdio host one server of a session that was made through the control API
///
/// leash asks the running `leash serve` for the server's address over its control socket, and then acts as `leash
/// connect` to that address: when it ends, for whatever reason, the connection to the server ends, too. The session
/// itself stays until a program or a user ends it; then `leash attach` ends as well.
///
/// The exit code is 0 when the host is done, 1 when the session or the server is not known or the session has ended,
/// 128 + n after signal n, 125 when leash failed or no `leash serve` answers.
#[derive(Debug, Args)]
pub(crate) struct Attach {
    /// The control socket of `leash serve` [default: control.sock in the runtime directory]
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
    /// Send this header with every request, as `Name: value`; may be repeated
    #[arg(long = "header", value_name = "HEADER")]
    pub(crate) headers: Vec<String>,
    /// Send `Authorization: Bearer` with the token in this variable
    #[arg(long, value_name = "VARIABLE", value_parser = values::short)]
    pub(crate) bearer_env: Option<String>,
    /// The owners of the connection: parent, ancestor, stdin, tty, pid:N or none; may be repeated
    ///
    /// The default is the same as that of `leash connect`.
    #[arg(long = "owner", value_name = "OWNER")]
    pub(crate) owners: Vec<OwnerArg>,
    /// How long requests may still be answered after the host closed stdin
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = values::duration)]
    pub(crate) grace: Duration,
    /// A label for listings and receipts; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = values::label)]
    pub(crate) labels: Vec<Pair>,
    /// Say on stderr what happens
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// The session's id, or a unique beginning of an id that leash made, and the server's name
    #[arg(value_name = "SESSION/SERVER")]
    pub(crate) target: AttachTarget,
}

/// A server of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AttachTarget {
    pub(crate) session: String,
    pub(crate) server: String,
}

impl FromStr for AttachTarget {
    type Err = String;
    fn from_str(text: &str) -> Result<AttachTarget, String> {
        let Some((session, server)) = text.split_once('/') else {
            return Err("write SESSION/SERVER".to_owned());
        };
        values::session(session).map_err(|why| format!("the session: {why}"))?;
        if server.is_empty() {
            return Err("the server's name is missing: write SESSION/SERVER".to_owned());
        }
        Ok(AttachTarget { session: session.to_owned(), server: server.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_session_and_a_server() {
        let target =
            |session: &str, server: &str| AttachTarget { session: session.to_owned(), server: server.to_owned() };
        assert_eq!("job-1/files".parse(), Ok(target("job-1", "files")));
        // The gateway checks the names of servers.
        assert_eq!("job-1/a/b".parse(), Ok(target("job-1", "a/b")));
        for bad in ["", "job-1", "/files", "job-1/", "a b/files", "../x/y"] {
            assert!(bad.parse::<AttachTarget>().is_err(), "{bad}");
        }
    }
}
