//! `leash guard`: holds the upstream sessions of a program that speaks HTTP itself, and ends them when the program is
//! gone.
//!
//! The program writes a line to stdin for each session that it opened or ended. The lines have credentials, so they stay
//! in memory: the keeper gets them through its socket, the ledger has only the address and the session's id.

use std::{collections::BTreeMap, io, os::fd::OwnedFd, time::Duration};

use hyper::{HeaderMap, StatusCode};
use serde::Deserialize;
use tokio::task::JoinSet;

use crate::ConnectError;
use crate::machine::SessionNumber;
use crate::notices::Notices;
use crate::pipe::HostInput;
use crate::process_events::{ProcessEvent, ProcessEvents};
use crate::run::{block_on, copy, watch_owners};
use crate::upstream_sessions::{UpstreamSession, UpstreamSessions};
use leash_model::clock::{self, Moment};
use leash_model::owner::{Owner, OwnerWish};
use leash_model::receipt::{DeleteHow, Reason, Receipt};
use leash_model::{id, limits};
use leash_protocol::frame::Line;
use leash_tree::ledger::book::{Book, Membership};
use leash_tree::tree::first_look::FirstLook;
use leash_tree::{owner, places::Places};
use leash_upstream::address::{self, AddressError, HttpTransport};
use leash_upstream::client::UpstreamClient;
use leash_upstream::delete::{self, DeleteResult, DeleteTarget};
use leash_upstream::keeper::{self, connection_facts::ConnectionFacts};
use leash_upstream::notice::Notice;

/// The settings of a guard.
pub struct GuardSettings {
    /// The owners. The guard ends its sessions when one of them is gone.
    pub owners: Vec<OwnerWish>,
    /// The session to which the guard belongs. `None`: a session of its own.
    pub session: Option<String>,
    /// The name in listings.
    pub name: String,
    /// Labels for listings.
    pub labels: BTreeMap<String, String>,
    /// The directories for the ledger and the receipts.
    pub places: Places,
    /// Called with each report for the program.
    pub report: Box<dyn Fn(GuardReport<'_>)>,
    /// Called with each notice for the user.
    pub tell: Box<dyn Fn(Notice)>,
}

/// A report of the guard to its program.
#[derive(Clone, Copy, Debug)]
pub enum GuardReport<'a> {
    /// The guard is ready. The text is leash's own id for the session.
    Ready(&'a str),
    /// The ledger and the keeper know of the session with this id at the server: whatever is killed now, it ends.
    Held(&'a str),
}

/// The end of a guard.
#[derive(Clone, Debug)]
pub struct GuardEnd {
    /// The reason of the end.
    pub reason: Reason,
    /// The receipt with the fate of the upstream sessions. `None` if there was none, or if the keeper will end them.
    pub receipt: Option<Receipt>,
}

/// A line of the program.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum GuardLine {
    /// The program has a session. Replaces an earlier line about the same session.
    Open(OpenedSession),
    /// The server has accepted the program's own DELETE.
    Ended(EndedSession),
}

#[derive(Deserialize, PartialEq, Eq)]
struct OpenedSession {
    url: String,
    session: String,
    #[serde(default)]
    version: Option<String>,
    /// The headers of the program's latest request.
    #[serde(default)]
    headers: Vec<(String, String)>,
}

impl std::fmt::Debug for OpenedSession {
    /// Shows neither the address nor the headers: both may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenedSession").field("version", &self.version).finish_non_exhaustive()
    }
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
struct EndedSession {
    session: String,
    status: u16,
}

/// The reason that a line is refused. No message contains the line: it may be secret.
#[derive(Debug, thiserror::Error)]
enum LineError {
    #[error("a line on stdin is longer than {} bytes", limits::LINE)]
    TooLong,
    #[error("a line on stdin is neither an opened nor an ended session")]
    Unknown,
    #[error("a session on stdin cannot be held: {0}")]
    Address(#[from] AddressError),
}

/// Reads a line.
fn parse(line: &Line) -> Result<GuardLine, LineError> {
    match line {
        Line::Whole(bytes) => serde_json::from_slice(bytes).map_err(|_| LineError::Unknown),
        Line::TooLong { .. } => Err(LineError::TooLong),
    }
}

impl OpenedSession {
    /// Everything that the DELETE needs. The headers of a request include some that belong to that request alone.
    fn delete_target(self) -> Result<DeleteTarget, AddressError> {
        let headers: Vec<_> = self.headers.into_iter().filter(|(name, _)| !address::belongs_to_message(name)).collect();
        let upstream = address::upstream(&self.url, &headers, HttpTransport::Streamable)?;
        let headers = HeaderMap::from_iter(upstream.headers);
        Ok(DeleteTarget { url: upstream.url, session_id: self.session, version: self.version, headers })
    }
}

/// Runs a guard to its end. It blocks, and uses the process's signals and stdin.
pub fn guard(settings: GuardSettings, first: FirstLook) -> Result<GuardEnd, ConnectError> {
    let (watches, signals) = watch_owners(&settings.owners, first)?;
    block_on(async { Ok(GuardDriver::begin(settings, watches, signals)?.run_to_end().await) })
}

struct GuardDriver {
    held: ProgramSessions,
    input: HostInput,
    events: ProcessEvents,
}

impl GuardDriver {
    fn begin(
        settings: GuardSettings,
        watches: Vec<owner::OwnerWatch>,
        signals: OwnedFd,
    ) -> Result<GuardDriver, ConnectError> {
        let GuardSettings { session, name, labels, places, report, tell, .. } = settings;
        let run = id::random();
        let session = session.unwrap_or_else(|| run.clone());
        let owners: Vec<Owner> = watches.iter().map(|watch| watch.owner.clone()).collect();
        let member = Membership { session: session.clone(), name: name.clone(), labels: labels.clone(), owners };
        let facts =
            ConnectionFacts { session: session.clone(), run, name, labels, shown: None, started_ms: clock::unix_ms() };
        let book = Book::of_connection(&places, &facts.run, member).map_err(ConnectError::Ledger)?;
        let owners = keeper::watched(&watches).map(copy).collect::<io::Result<_>>().map_err(ConnectError::Start)?;
        let events = ProcessEvents::watch(watches, signals).map_err(ConnectError::Start)?;
        let input = HostInput::open().map_err(ConnectError::Start)?;
        let mut sessions = UpstreamSessions::new(facts, places, book, owners);
        sessions.prepare().map_err(ConnectError::Start)?;
        report(GuardReport::Ready(&session));
        let held = ProgramSessions { sessions, open: BTreeMap::new(), notices: Notices::new(tell), report };
        Ok(GuardDriver { held, input, events })
    }

    async fn run_to_end(mut self) -> GuardEnd {
        let reason = loop {
            if let Some(reason) = self.step().await {
                break reason;
            }
        };
        self.read_rest().await;
        self.end(reason).await
    }

    /// Waits for one event and handles it. Returns the reason if the guard has to end its sessions.
    async fn step(&mut self) -> Option<Reason> {
        tokio::select! {
            line = self.input.next() => match line {
                Some(line) => self.held.take(&line),
                None => return Some(Reason::StdinClosed),
            },
            event = self.events.next() => match event {
                ProcessEvent::OwnerGone(reason) => return Some(reason),
                ProcessEvent::Signal(signal) => return Some(Reason::Signal { signal }),
                ProcessEvent::EndRequested => return Some(Reason::LEASH_END),
                // The lines that are still in the pipe come first; after them, reading finds the end.
                ProcessEvent::StdinClosed => {}
                ProcessEvent::ChildExited => {
                    if let Err(error) = self.held.sessions.restart_keeper() {
                        self.held.notices.warn(format!("cannot start another keeper: {error}"));
                    }
                }
            },
        }
        None
    }

    /// Reads what a program that was killed has written before. If the program lives, it may go on writing, so the time
    /// is limited.
    async fn read_rest(&mut self) {
        let rest = async {
            while let Some(line) = self.input.next().await {
                self.held.take(&line);
            }
        };
        let _ = tokio::time::timeout(REST, rest).await;
    }

    /// Ends the sessions at the same time. After another signal meanwhile, the keeper does the rest.
    async fn end(mut self, reason: Reason) -> GuardEnd {
        let began = Moment::on_runtime();
        let ProgramSessions { mut sessions, open, notices, .. } = self.held;
        sessions.ending();
        let client = UpstreamClient::new();
        let mut under_way = JoinSet::new();
        for number in open.values().copied() {
            let Some(target) = sessions.delete_target(number) else { continue };
            let client = client.clone();
            under_way.spawn_local(async move { (number, delete::delete(&client, &target).await) });
        }
        let mut is_left = false;
        while !under_way.is_empty() {
            tokio::select! {
                Some(Ok((number, deleted))) = under_way.join_next() => {
                    is_left |= deleted.cut_short;
                    notices.check_written(sessions.ended(number, &deleted));
                }
                ProcessEvent::Signal(_) = self.events.next() => {
                    client.deadline.set(Moment::on_runtime().max(began + limits::KEEPER_ANSWER));
                }
                else => {}
            }
        }
        if is_left {
            notices.check_written(sessions.leave_to_keeper());
            notices.warn("the keeper will end the upstream session");
            return GuardEnd { reason, receipt: None };
        }
        let receipt = sessions.receipt(reason.clone(), Moment::on_runtime() - began);
        let receipt = (!receipt.holdings.is_empty()).then_some(receipt);
        sessions.finish(receipt.as_ref(), &notices);
        GuardEnd { reason, receipt }
    }
}

/// The time for reading the rest of stdin. The lines of a killed program are in the pipe already.
const REST: Duration = Duration::from_millis(200);

/// The sessions of the program.
struct ProgramSessions {
    sessions: UpstreamSessions,
    /// The sessions that are open, by their ids at the server.
    open: BTreeMap<String, SessionNumber>,
    notices: Notices,
    report: Box<dyn Fn(GuardReport<'_>)>,
}

impl ProgramSessions {
    /// Holds or releases a session, as a line says.
    fn take(&mut self, line: &Line) {
        let taken = parse(line).and_then(|line| match line {
            GuardLine::Open(opened) => Ok(self.hold(opened.delete_target()?)),
            GuardLine::Ended(ended) => Ok(self.release(&ended)),
        });
        match taken {
            Ok(written) => self.notices.check_written(written),
            Err(error) => self.notices.warn(error.to_string()),
        }
    }

    fn hold(&mut self, target: DeleteTarget) -> io::Result<()> {
        let id = target.session_id.clone();
        let written = match self.open.get(&id) {
            Some(number) => self.sessions.renew(*number, target),
            None => {
                let number = self.sessions.add(UpstreamSession::WithId(target));
                self.open.insert(id.clone(), number);
                self.sessions.hold(Some(number))
            }
        };
        (self.report)(GuardReport::Held(&id));
        written
    }

    fn release(&mut self, ended: &EndedSession) -> io::Result<()> {
        match self.open.remove(&ended.session) {
            Some(number) => self.sessions.gone(number, &accepted(ended.status)),
            None => Ok(()),
        }
    }
}

/// The result of a DELETE that the program has sent itself.
fn accepted(status: u16) -> DeleteResult {
    let status = StatusCode::from_u16(status).ok();
    DeleteResult { how: DeleteHow::Deleted, status, tries: 1, why: None, cut_short: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<GuardLine, LineError> {
        parse(&Line::Whole(text.to_owned().into()))
    }

    #[test]
    fn lines_of_a_program() {
        let ended = EndedSession { session: "a".to_owned(), status: 204 };
        assert_eq!(read(r#"{"ended": {"session": "a", "status": 204}}"#).ok(), Some(GuardLine::Ended(ended)));
        let opened = OpenedSession {
            url: "http://h/mcp".to_owned(),
            session: "a".to_owned(),
            version: None,
            headers: vec![("x".to_owned(), "1".to_owned())],
        };
        let text = r#"{"open": {"url": "http://h/mcp", "session": "a", "headers": [["x", "1"]]}}"#;
        assert_eq!(read(text).ok(), Some(GuardLine::Open(opened)));
        for text in ["", "{}", "[]", "hush", r#"{"open": {"url": "hush"}}"#, r#"{"closed": {}}"#] {
            let error = read(text).expect_err("it is no line of a program").to_string();
            assert!(!error.contains("hush"), "{error}");
        }
        assert!(matches!(parse(&Line::TooLong { length: 1 }), Err(LineError::TooLong)));
    }

    #[test]
    fn a_delete_has_the_credentials_of_the_latest_request_and_nothing_else_of_it() {
        let headers = [
            ("Authorization", "Bearer hush"),
            ("X-Tenant", "red"),
            ("content-type", "application/json"),
            ("Accept", "text/event-stream"),
            ("content-length", "7"),
            ("Mcp-Session-Id", "a"),
            ("mcp-method", "tools/call"),
            ("Mcp-Param-City", "Oslo"),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let (url, session) = ("https://h/mcp?key=hush".to_owned(), "a".to_owned());
        let opened = OpenedSession { url, session, version: Some("2025-11-25".to_owned()), headers };
        assert!(!format!("{opened:?}").contains("hush"));
        let target = opened.delete_target().expect("it can be held");
        assert_eq!((&*target.session_id, target.version.as_deref()), ("a", Some("2025-11-25")));
        assert_eq!(target.url, "https://h/mcp?key=hush");
        let mut names: Vec<&str> = target.headers.keys().map(|name| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "x-tenant"]);
    }
}
