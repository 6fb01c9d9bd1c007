//! `leash attach`.

use std::path::{Path, PathBuf};

use leash_gateway::control_client::{self, ControlClientError};
use leash_tree::tree::first_look::FirstLook;

use super::connect;
use crate::args::{Attach, AttachTarget, Connect, SessionName, TransportArg};
use crate::output::ids;
use crate::output::printer::Printer;
use crate::{exit_code, places};

pub(crate) fn attach(args: Attach, first: FirstLook) -> u8 {
    let printer = Printer::new(args.verbose);
    let socket = socket(args.control.as_deref());
    let found = whole(&socket, &args.target).and_then(|target| Ok((find(&socket, &target)?, target)));
    match found {
        // The URL is a secret and stays in memory: other users could read an argument, a variable or a log line.
        Ok((url, target)) => {
            let shown = format!("{}/{}", target.session, target.server);
            connect::connect_to(connection(Attach { target, ..args }, url), Some(shown), first)
        }
        Err(Missing { text, hint, code }) => {
            printer.error_text(text, Some(&hint));
            code
        }
    }
}

/// The control socket: the given one, else the default.
pub(super) fn socket(given: Option<&Path>) -> PathBuf {
    given.map_or_else(places::control_socket, Path::to_owned)
}

/// The reason why there is nothing to attach to.
struct Missing {
    text: String,
    hint: String,
    code: u8,
}

/// The target with the whole id of its session, which may have been shortened to a unique beginning. Names that users
/// chose are not abbreviated.
fn whole(socket: &Path, target: &AttachTarget) -> Result<AttachTarget, Missing> {
    let AttachTarget { session: word, server } = target;
    let alive: Vec<String> =
        control_client::sessions(socket).map_err(|error| missing(&error))?.into_iter().map(|held| held.id).collect();
    let begun = |id: &&String| ids::is_made(id) && ids::begins(id, word);
    let found: Vec<&str> = alive.iter().filter(begun).map(String::as_str).collect();
    match &found[..] {
        [id] if !alive.contains(word) => Ok(AttachTarget { session: (*id).to_owned(), server: server.clone() }),
        [_, _, ..] if !alive.contains(word) => Err(Missing {
            text: ids::ambiguous(word, &found),
            hint: "`leash ps` lists the sessions that are alive".to_owned(),
            code: exit_code::NOT_ALL,
        }),
        _ => Ok(target.clone()),
    }
}

/// The server's URL.
fn find(socket: &Path, target: &AttachTarget) -> Result<String, Missing> {
    let AttachTarget { session, server } = target;
    let servers = control_client::servers(socket, session).map_err(|error| missing(&error))?;
    let found = servers.iter().find(|(name, _)| name == server);
    found.map(|(_, url)| url.expose().to_owned()).ok_or_else(|| {
        let names: Vec<_> = servers.iter().map(|(name, _)| name.as_str()).collect();
        Missing {
            text: format!("session `{session}` has no server `{server}`"),
            hint: format!("it has: {}", names.join(", ")),
            code: exit_code::NOT_ALL,
        }
    })
}

fn missing(error: &ControlClientError) -> Missing {
    let (hint, code) = match error {
        ControlClientError::NoDaemon(_) => (
            "start `leash serve` and create the session again, or name another socket with --control".to_owned(),
            exit_code::LEASH_FAILED,
        ),
        ControlClientError::Refused { problem, .. } if matches!(problem.as_str(), "no-such-session" | "ended") => (
            "`leash ps` lists the sessions that are alive, `leash history` those that ended".to_owned(),
            exit_code::NOT_ALL,
        ),
        ControlClientError::Refused { hint: Some(hint), .. } => (hint.clone(), exit_code::LEASH_FAILED),
        ControlClientError::Stranger { .. } => (
            "nothing was sent; --control names the socket of your own `leash serve`".to_owned(),
            exit_code::LEASH_FAILED,
        ),
        ControlClientError::TooLong(_) => ("name a shorter path with --control".to_owned(), exit_code::LEASH_FAILED),
        _ => ("check that `leash serve` works; nothing was sent to the server".to_owned(), exit_code::LEASH_FAILED),
    };
    Missing { text: leash_model::error::with_causes(error), hint, code }
}

/// The connection to it, as if its options had been typed.
fn connection(args: Attach, url: String) -> Connect {
    let AttachTarget { session, server } = args.target;
    Connect {
        headers: args.headers,
        header_env: Vec::new(),
        bearer_env: args.bearer_env,
        transport: TransportArg::Auto,
        revive: false,
        // An ended session must not be opened again: the host must notice the end.
        no_revive: true,
        owners: args.owners,
        grace: args.grace,
        max_age: None,
        session: Some(SessionName::literal(session)),
        session_env: None,
        name: Some(server),
        labels: args.labels,
        verbose: args.verbose,
        url,
    }
}
