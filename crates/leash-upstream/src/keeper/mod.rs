//! The keeper of a connection or of a gateway, from that process's side. The process starts the keeper before there is
//! a session, tells it of every session that must be ended, and starts another keeper if it dies.
//!
//! `process` is the keeper itself, and `machine` its decisions.

pub mod connection_facts;
pub mod handover;
mod machine;
pub mod process;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::{io, process::Child};

use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Uri};
use rustix::event::{PollFd, PollFlags};
use rustix::net::SendFlags;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use self::{connection_facts::ConnectionFacts, process::ROLE};
use crate::delete::{DeleteTarget, shown};
use crate::{origin::Origin, sweep::ServerAccess};
use leash_model::client::GatewayClient;
use leash_model::clock::{Moment, timeout_until};
use leash_model::{identity::Identity, limits, owner::Owner, receipt::UpstreamEnd};
use leash_tree::ledger::book::{Cover, Entry};
use leash_tree::owner::OwnerWatch;
use leash_tree::platform::command::{self, Launch};
use leash_tree::platform::{channel, identity, linux};

/// The numbers of the descriptors that a keeper inherits.
mod fds {
    /// The control socket.
    pub(super) const CONTROL: i32 = 3;
    /// The orders, a memfd.
    pub(super) const ORDERS: i32 = 4;
    /// The lock of the book.
    pub(super) const LOCK: i32 = 5;
    /// The first of the owners' descriptors. The handover socket follows after them.
    pub(super) const OWNERS: i32 = 6;
}

/// The orders that a keeper gets at its start.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeeperOrders {
    /// The directory of the ledger.
    pub runtime_dir: PathBuf,
    /// The book's id.
    pub book: String,
    /// The file for the receipts.
    pub receipts: PathBuf,
    /// The facts for one receipt about all sessions (`connect`). `None`: each session has its own receipt (`serve`).
    pub connection_facts: Option<ConnectionFacts>,
    /// The owners that the keeper watches, too.
    pub owners: Vec<Owner>,
    /// The book's cover when the keeper was started, if the book can change hands (`serve`).
    pub cover: Option<Cover>,
    /// The time that the keeper of a killed gateway waits for a new gateway, in milliseconds. `None`: there is no
    /// handover socket.
    pub takeover_ms: Option<u64>,
}

/// A message to a keeper. A message about a session names the session by a key that the sender chose.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeeperMessage {
    /// The session exists upstream. Replaces an earlier message about the same session. The text is a
    /// [`HeldSession`], parsed only when it is needed.
    Hold(Box<str>, Box<RawValue>),
    /// The session is over. The end is given if a receipt has to name it.
    Ended(Box<str>, Option<Box<UpstreamEnd>>),
    /// Forget all earlier messages. The sender tells everything again.
    Anew,
    /// The process has begun to end its sessions itself.
    Ending,
    /// Nothing is left to do.
    Done,
}

impl KeeperMessage {
    /// Builds the message that a session exists upstream.
    pub fn hold(key: &str, session: &HeldSession) -> io::Result<KeeperMessage> {
        Ok(KeeperMessage::Hold(key.into(), serde_json::value::to_raw_value(session)?))
    }
}

/// A session at a server, with everything that its end needs. It has credentials, so it stays in memory and is never
/// written to disk.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct HeldSession {
    server: String,
    url: String,
    /// The session's id. `None` for the old transport, whose session ends with its connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// The values are decoded as Latin-1, because they need not be UTF-8.
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    headers: Headers,
    started_ms: u64,
    /// The facts with which another gateway can resume the session. `None`: the session can only be ended.
    #[serde(default, rename = "stay", skip_serializing_if = "Option::is_none")]
    pub resume_facts: Option<ResumeFacts>,
}

/// The facts that another gateway needs to resume a session.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct ResumeFacts {
    /// The session id that the client sends.
    pub token: String,
    /// The client's own headers, without the configured ones. They identify the client.
    pub credentials: Headers,
    /// The user id of a local client.
    pub uid: Option<u32>,
    /// The client's origin.
    pub origin: Origin,
    /// The known processes of the client.
    pub owners: Vec<Identity>,
    /// The process that exited last, if none is left.
    pub lost: Option<i32>,
    /// A client whose process is unknown has used the session.
    #[serde(rename = "strangers")]
    pub unknown_client: bool,
    /// The client, as listings show it.
    #[serde(default)]
    pub client: Option<GatewayClient>,
    /// The time of its beginning on the monotonic clock, in milliseconds.
    pub born_ms: u64,
    /// The client's `initialize` and `notifications/initialized`, if leash may open a lost session anew.
    pub revival: Option<(String, Option<String>)>,
}

/// Headers in a form that can be sent as JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Copies headers.
    pub fn of<'a>(headers: impl IntoIterator<Item = (&'a HeaderName, &'a HeaderValue)>) -> Headers {
        let text = |value: &HeaderValue| value.as_bytes().iter().map(|byte| char::from(*byte)).collect();
        Headers(headers.into_iter().map(|(name, value)| (name.to_string(), text(value))).collect())
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Parses the headers and marks them all as sensitive.
    pub fn read(&self) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.0 {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            let value: Result<Vec<u8>, _> = value.chars().map(u8::try_from).collect();
            let mut value = HeaderValue::from_bytes(&value.ok()?).ok()?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        Some(headers)
    }
}

impl HeldSession {
    /// Describes a session that needs a DELETE.
    pub fn of(server: &str, started_ms: u64, delete_target: &DeleteTarget) -> HeldSession {
        HeldSession {
            server: server.to_owned(),
            url: delete_target.url.to_string(),
            id: Some(delete_target.session_id.clone()),
            version: delete_target.version.clone(),
            headers: Headers::of(&delete_target.headers),
            started_ms,
            resume_facts: None,
        }
    }

    /// Describes a session that ends with its connection.
    pub fn stream(server: &str, started_ms: u64, url: &Uri) -> HeldSession {
        HeldSession { server: server.to_owned(), url: url.to_string(), started_ms, ..HeldSession::default() }
    }

    /// The server's address.
    pub fn url(&self) -> Option<Uri> {
        self.url.parse().ok()
    }

    fn headers(&self) -> Option<HeaderMap> {
        self.headers.read()
    }

    /// Sets the facts with which another gateway can resume the session.
    pub fn resumable(self, resume_facts: Option<ResumeFacts>) -> HeldSession {
        HeldSession { resume_facts, ..self }
    }

    /// The server's name.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The address and the headers for the DELETE of a sweep.
    pub fn access(&self) -> Option<ServerAccess> {
        Some(ServerAccess { url: self.url()?, headers: self.headers()? })
    }

    /// Returns everything that the DELETE needs. `None` if the session needs no DELETE.
    fn delete_target(&self) -> Option<DeleteTarget> {
        let (url, session_id, version) = (self.url()?, self.id.clone()?, self.version.clone());
        Some(DeleteTarget { url, session_id, version, headers: self.headers()? })
    }

    /// Returns the session's entry for the ledger. `None` if the session needs no DELETE.
    pub fn entry(&self, session: &str) -> Option<Entry> {
        Some(Entry {
            session: session.to_owned(),
            server: self.server.clone(),
            url: shown(&self.url()?),
            id: self.id.clone()?,
            version: self.version.clone(),
            shown: None,
            started_ms: self.started_ms,
        })
    }
}

/// Adds an end to the list for a receipt. At the limit, the list keeps the first and the newest ends.
pub fn add_end(ends: &mut Vec<UpstreamEnd>, end: UpstreamEnd) {
    if ends.len() == limits::ENDS_NAMED {
        ends.remove(1);
    }
    ends.push(end);
}

/// A running keeper process.
#[derive(Debug)]
pub struct KeeperProcess {
    child: Child,
    control: OwnedFd,
    pidfd: OwnedFd,
}

impl KeeperProcess {
    /// Starts a keeper. It shares the book's lock, so that no sweep takes the book for abandoned while the keeper
    /// works. A keeper that waits for another gateway gets `handover_socket`.
    pub fn start(
        program: &Path,
        orders: &KeeperOrders,
        lock: BorrowedFd<'_>,
        owners: &[&OwnedFd],
        handover_socket: Option<BorrowedFd<'_>>,
    ) -> io::Result<KeeperProcess> {
        let (control, theirs) = channel::pair()?;
        let copy = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 3);
        let mut given =
            vec![(theirs, fds::CONTROL), (channel::write_memfd(orders)?, fds::ORDERS), (copy(lock)?, fds::LOCK)];
        for (fd, number) in owners.iter().map(|owner| owner.as_fd()).chain(handover_socket).zip(fds::OWNERS..) {
            given.push((copy(fd)?, number));
        }
        let mut child = command::launch(Launch { program, role: ROLE, arguments: &[], fds: given, piped: false })?;
        let pid = child.id() as i32;
        match identity::pidfd(pid) {
            Ok(pidfd) => Ok(KeeperProcess { child, control, pidfd }),
            Err(errno) => {
                let _ = linux::kill_own_child(pid);
                let _ = child.wait();
                Err(errno.into())
            }
        }
    }

    /// Sends a message without waiting. After success the message is in the keeper's socket, even if this process dies
    /// at once. Returns `WouldBlock` if the socket is full because the keeper is slow or stopped.
    pub fn tell(&self, message: &KeeperMessage) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        rustix::net::send(&self.control, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Returns copies of the keeper's pidfd and of our end of its socket, for a task that waits for its death and for
    /// room in the socket.
    pub fn watched_by_task(&self) -> io::Result<(OwnedFd, OwnedFd)> {
        Ok((self.pidfd.try_clone()?, self.control.try_clone()?))
    }

    /// Reaps the keeper if it is dead. Returns true in that case.
    pub fn is_gone(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Tells the keeper that nothing is left to do, and waits for its exit: in a container whose first process does not
    /// reap, it would stay a zombie. The wait has a timeout, because the keeper may be stopped.
    pub fn dismiss(mut self) {
        let _ = self.tell(&KeeperMessage::Done);
        self.wait_for_death();
        if !self.is_gone() {
            let _ = linux::kill_own_child(self.child.id() as i32);
            // Not a blocking wait: while a tracer holds the dead process, this process cannot reap it.
            self.wait_for_death();
            self.is_gone();
        }
    }

    fn wait_for_death(&self) {
        let now = Moment::now();
        let patience = timeout_until(now + limits::KEEPER_ANSWER, now);
        let _ = rustix::event::poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&patience));
    }
}

/// Selects the owners that the keeper of a connection watches, too. So a session of a dead owner ends even if leash is
/// stopped (SIGSTOP). The host's stdin is left out, because its end alone does not say if all lines were read.
pub fn watched(watches: &[OwnerWatch]) -> impl Iterator<Item = &OwnerWatch> {
    watches.iter().filter(|watch| matches!(watch.owner, Owner::Process { .. } | Owner::Terminal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_session_keeps_everything_that_delete_needs() {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", HeaderValue::from_static("Bearer hush"));
        headers.append("x-two", HeaderValue::from_static("1"));
        headers.append("x-two", HeaderValue::from_bytes(b"\xff\"").expect("a value"));
        let url = "http://h:1/mcp?key=hush".parse().expect("a url");
        let delete_target =
            DeleteTarget { url, session_id: "s-1".to_owned(), version: Some("2025-11-25".to_owned()), headers };
        let text =
            serde_json::to_vec(&KeeperMessage::hold("k", &HeldSession::of("x", 5, &delete_target)).expect("JSON"))
                .expect("JSON");
        let Ok(KeeperMessage::Hold(key, session)) = serde_json::from_slice(&text) else {
            panic!("the message changed on the way")
        };
        let session: HeldSession = serde_json::from_str(session.get()).expect("a session");
        let back = session.delete_target().expect("a session with an id");
        assert_eq!(
            (back.url, back.session_id, back.version),
            (delete_target.url, delete_target.session_id, delete_target.version)
        );
        assert_eq!(back.headers, delete_target.headers);
        let entry = session.entry(&key).expect("an entry");
        assert_eq!((&*entry.session, &*entry.url, entry.started_ms), ("k", "http://h:1/mcp", 5));
    }

    #[test]
    fn held_stream_has_no_delete() {
        let session = HeldSession::stream("x", 5, &"http://h/sse".parse().expect("a url"));
        assert!(session.delete_target().is_none() && session.entry("k").is_none());
        assert_eq!(session.url().map(|url| url.to_string()).as_deref(), Some("http://h/sse"));
    }
}
