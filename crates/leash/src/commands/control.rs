//! The sessions of a running `leash serve`, for the commands that list and end sessions.

use std::path::PathBuf;

use leash_gateway::control_client;
use leash_model::alive::SessionMember;
use leash_model::error::with_causes;
use leash_model::receipt::Receipt;
use leash_model::view::SessionView;
use leash_tree::session::Unfinished;

use crate::output::printer::Printer;

/// A daemon, if one runs.
#[derive(Debug)]
pub(super) struct Daemon {
    socket: PathBuf,
    /// Its process; the daemon itself ends what it holds. `None` if it has no sessions.
    pid: Option<i32>,
    /// True if it did not say which sessions it has. The user was warned.
    pub(super) is_silent: bool,
}

impl Daemon {
    /// Asks the daemon behind a socket for its sessions.
    pub(super) fn ask(socket: PathBuf, printer: Printer) -> (Daemon, Vec<SessionView>) {
        let (daemon, sessions, warning) = Daemon::find(socket);
        warning.into_iter().for_each(|warning| printer.warning(warning));
        (daemon, sessions)
    }

    /// The same; the warning is for the user.
    pub(super) fn find(socket: PathBuf) -> (Daemon, Vec<SessionView>, Option<String>) {
        let answer = control_client::sessions(&socket);
        let text = |error| format!("cannot list the sessions of `leash serve`: {}", with_causes(error));
        let warning = answer.as_ref().err().map(|error| text(error));
        let is_silent = answer.is_err();
        let sessions = answer.unwrap_or_default();
        let version = (!sessions.is_empty()).then(|| control_client::version(&socket).ok()).flatten();
        let pid = version.and_then(|version| i32::try_from(version.pid).ok());
        (Daemon { socket, pid, is_silent }, sessions, warning)
    }

    /// True if the daemon itself holds a member of one of its sessions; false for a member that joined.
    pub(super) fn holds(&self, member: &SessionMember) -> bool {
        self.pid.is_some_and(|pid| member.is_held_by(pid))
    }

    /// Ends sessions, all at the same time, and waits for them.
    pub(super) fn end(&self, sessions: &[&str], force: bool) -> (Vec<Receipt>, Vec<Unfinished>) {
        if let [_, _, ..] = sessions {
            let query = if force { "?wait=false&force=true" } else { "?wait=false" };
            for session in sessions {
                // If this request fails, the one below reports the error.
                let _ = control_client::call(&self.socket, "DELETE", &format!("/v1/sessions/{session}{query}"), None);
            }
        }
        let (mut receipts, mut unfinished) = (Vec::new(), Vec::new());
        for session in sessions {
            match control_client::end_session(&self.socket, session, force) {
                Ok(receipt) => receipts.extend(receipt),
                Err(error) => unfinished.push(Unfinished::whole(session, with_causes(&error))),
            }
        }
        (receipts, unfinished)
    }
}
