//! The sessions of a running `leash serve`, for the commands that list and end sessions.

use std::path::{Path, PathBuf};

use leash_gateway::control_client::{self, ControlClientError};
use leash_model::receipt::Receipt;
use leash_tree::session::{Joined, Unfinished};
use serde_json::Value;

use super::choose::Known;

/// A daemon and its sessions; empty if no daemon runs.
#[derive(Debug, Default)]
pub(super) struct Daemon {
    socket: PathBuf,
    /// The daemon's process; the daemon itself ends what it holds.
    pid: Option<i32>,
    /// Sessions that have not ended, as the control API shows them.
    pub(super) sessions: Vec<Value>,
}

impl Daemon {
    /// Asks the daemon behind a socket. The warning is for the user: then the daemon's sessions are not known.
    pub(super) fn ask(socket: &Path) -> (Daemon, Option<String>) {
        let mut daemon = Daemon { socket: socket.to_owned(), ..Daemon::default() };
        match control_client::sessions(socket) {
            Ok(sessions) => {
                daemon.sessions = sessions.into_iter().filter(|session| session["state"] != "ended").collect();
            }
            Err(error) => {
                return (daemon, Some(format!("cannot list the sessions of `leash serve`: {}", text(&error))));
            }
        }
        if !daemon.sessions.is_empty() {
            daemon.pid = control_client::call(socket, "GET", "/v1/version", None)
                .ok()
                .and_then(|(_, body)| serde_json::from_slice::<Value>(&body).ok())
                .and_then(|version| i32::try_from(version["pid"].as_i64()?).ok());
        }
        (daemon, None)
    }

    /// Its sessions, as candidates for a choice.
    pub(super) fn known(&self) -> impl Iterator<Item = Known> {
        self.sessions.iter().filter_map(|session| {
            let labels = session["labels"].as_object().into_iter().flatten();
            let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
            Some(Known { session: session["id"].as_str()?.to_owned(), run: None, labels: labels.collect() })
        })
    }

    /// True if it has this session.
    pub(super) fn has(&self, session: &str) -> bool {
        self.sessions.iter().any(|known| known["id"] == session)
    }

    /// True if the daemon itself holds a member of one of its sessions; false for a member that joined.
    pub(super) fn holds(&self, member: &Joined) -> bool {
        self.has(member.session()) && self.pid.is_some_and(|pid| member.is_held_by(pid))
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
                Err(error) => {
                    let (session, run) = ((*session).to_owned(), (*session).to_owned());
                    unfinished.push(Unfinished { session, run, why: text(&error) });
                }
            }
        }
        (receipts, unfinished)
    }
}

fn text(error: &ControlClientError) -> String {
    leash_model::error::with_causes(error)
}
