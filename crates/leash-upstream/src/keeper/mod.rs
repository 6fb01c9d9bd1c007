//! The keeper of a connection or of a gateway, seen from that process: started before there is anything to lose, told of everything
//! that would have to be ended, and started again when it is gone.
//!
//! `process` is the keeper itself.

pub mod handover;
pub mod process;
pub mod terms;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Child;

use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Uri};
use rustix::event::{PollFd, PollFlags};
use rustix::net::SendFlags;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use self::process::ROLE;
use self::terms::Terms;
use super::delete::{Ticket, shown};
use super::sweep::Known;
use crate::origin::Origin;
use leash_model::clock::{Moment, timeout_until};
use leash_model::identity::Identity;
use leash_model::limits;
use leash_model::owner::Owner;
use leash_model::receipt::UpstreamEnd;
use leash_tree::ledger::book::{Cover, Entry};
use leash_tree::owner::Watch;
use leash_tree::platform::channel;
use leash_tree::platform::command;
use leash_tree::platform::command::Launch;
use leash_tree::platform::{identity, linux};

/// Descriptors at which a keeper finds what it inherits.
mod fds {
    /// The control socket.
    pub(super) const CONTROL: i32 = 3;
    /// The orders, a memfd.
    pub(super) const ORDERS: i32 = 4;
    /// The lock of the book.
    pub(super) const LOCK: i32 = 5;
    /// The owners' descriptors, from here on, and after them the door.
    pub(super) const OWNERS: i32 = 6;
}

/// Everything a keeper knows from its beginning.
#[derive(Debug, Serialize, Deserialize)]
pub struct Orders {
    pub runtime_dir: PathBuf,
    /// The book's id.
    pub book: String,
    /// Where receipts go.
    pub receipts: PathBuf,
    /// For the one receipt that names everything (`connect`). Without them every session has a receipt of its own (`serve`).
    pub terms: Option<Terms>,
    /// Whose loss it watches for as well.
    pub owners: Vec<Owner>,
    /// Whose book it was when the keeper was started, if that can change (`serve`).
    pub cover: Option<Cover>,
    /// How long it waits at the door for a gateway in the place of the killed one, in milliseconds. Without it there is no door.
    pub takeover_ms: Option<u64>,
}

/// A message to a keeper. Each is about one session, which goes by a key that its process chose.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Word {
    /// This session is held; it replaces an earlier message about the same one. A [`Lien`], read only when it is needed.
    Hold(Box<str>, Box<RawValue>),
    /// This session is over, in this way where the receipt has to name it.
    Ended(Box<str>, Option<Box<UpstreamEnd>>),
    /// Everything is told again: what was told before does not count.
    Anew,
    /// The end has begun; the process sees to it.
    Ending,
    /// Nothing is left to do.
    Done,
}

impl Word {
    /// The message that a session is held.
    pub fn hold(key: &str, lien: &Lien) -> io::Result<Word> {
        Ok(Word::Hold(key.into(), serde_json::value::to_raw_value(lien)?))
    }
}

/// A session at a server, with all that its end needs. It goes from memory to memory and is written nowhere.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Lien {
    server: String,
    url: String,
    /// The session's id; `None` for the old transport, whose session ends with its connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// Values as Latin-1, because they need not be UTF-8.
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    headers: Headers,
    started_ms: u64,
    /// What another gateway needs to go on with it; without it the session can only be ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stay: Option<Stay>,
}

/// What a gateway knows of a session besides its end.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Stay {
    /// What the client presents.
    pub token: String,
    /// The client's own headers, without the configured ones. Whose session it is follows from them.
    pub credentials: Headers,
    /// The user of a local client.
    pub uid: Option<u32>,
    /// Where the client is.
    pub origin: Origin,
    /// The client's processes, as far as they are known.
    pub owners: Vec<Identity>,
    /// The last of them to go, if none is left.
    pub lost: Option<i32>,
    /// A client has used it whose process is not known.
    pub strangers: bool,
    /// When it began on the monotonic clock, in milliseconds.
    pub born_ms: u64,
    /// The client's `initialize` and `notifications/initialized`, where a lost session is opened anew.
    pub revival: Option<(String, Option<String>)>,
}

/// Headers on their way.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    pub fn of<'a>(headers: impl IntoIterator<Item = (&'a HeaderName, &'a HeaderValue)>) -> Headers {
        let text = |value: &HeaderValue| value.as_bytes().iter().map(|byte| char::from(*byte)).collect();
        Headers(headers.into_iter().map(|(name, value)| (name.to_string(), text(value))).collect())
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The headers themselves, all of them secrets.
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

impl Lien {
    /// A session that must be DELETEd.
    pub fn of(server: &str, started_ms: u64, ticket: &Ticket) -> Lien {
        Lien {
            server: server.to_owned(),
            url: ticket.url.to_string(),
            id: Some(ticket.session_id.clone()),
            version: ticket.version.clone(),
            headers: Headers::of(&ticket.headers),
            started_ms,
            stay: None,
        }
    }

    /// A session that is over with its connection.
    pub fn stream(server: &str, started_ms: u64, url: &Uri) -> Lien {
        let (server, url) = (server.to_owned(), url.to_string());
        Lien { server, url, id: None, version: None, headers: Headers::default(), started_ms, stay: None }
    }

    /// Its address.
    pub fn url(&self) -> Option<Uri> {
        self.url.parse().ok()
    }

    fn headers(&self) -> Option<HeaderMap> {
        self.headers.read()
    }

    /// The same session, with what another gateway needs to go on with it.
    pub fn staying(self, stay: Option<Stay>) -> Lien {
        Lien { stay, ..self }
    }

    /// The server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// All that its DELETE needs, for a sweep.
    pub fn known(&self) -> Option<Known> {
        Some(Known { url: self.url()?, headers: self.headers()? })
    }

    /// All that DELETE needs; `None` where there is nothing to DELETE.
    fn ticket(&self) -> Option<Ticket> {
        let (url, session_id, version) = (self.url()?, self.id.clone()?, self.version.clone());
        Some(Ticket { url, session_id, version, headers: self.headers()? })
    }

    /// What the book says of it, where it is in one; `None` where there is nothing to DELETE.
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

/// Adds an end to those that a receipt will name: the first and the newest ones.
pub fn name_end(ends: &mut Vec<UpstreamEnd>, end: UpstreamEnd) {
    if ends.len() == limits::ENDS_NAMED {
        ends.remove(1);
    }
    ends.push(end);
}

/// A keeper that was started.
#[derive(Debug)]
pub struct Keeper {
    child: Child,
    control: OwnedFd,
    pidfd: OwnedFd,
}

impl Keeper {
    /// Starts one. It shares the book's lock, so that no sweep takes the book for abandoned while it works. The door is for one that waits
    /// for another gateway.
    pub fn start(
        program: &Path,
        orders: &Orders,
        lock: BorrowedFd<'_>,
        owners: &[&OwnedFd],
        door: Option<BorrowedFd<'_>>,
    ) -> io::Result<Keeper> {
        let (control, theirs) = channel::pair()?;
        let copy = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 3);
        let mut given =
            vec![(theirs, fds::CONTROL), (channel::write_memfd(orders)?, fds::ORDERS), (copy(lock)?, fds::LOCK)];
        for (fd, number) in owners.iter().map(|owner| owner.as_fd()).chain(door).zip(fds::OWNERS..) {
            given.push((copy(fd)?, number));
        }
        let mut child = command::launch(Launch { program, role: ROLE, arguments: &[], fds: given, piped: false })?;
        let pid = child.id() as i32;
        match identity::pidfd(pid) {
            Ok(pidfd) => Ok(Keeper { child, control, pidfd }),
            Err(errno) => {
                let _ = linux::kill_own_child(pid);
                let _ = child.wait();
                Err(errno.into())
            }
        }
    }

    /// Tells it something, without waiting. Told means kept: the message is in its socket even if we die with the next instruction.
    /// `WouldBlock` where the socket is full: the keeper is slow or stopped.
    pub fn tell(&self, word: &Word) -> io::Result<()> {
        let bytes = serde_json::to_vec(word)?;
        rustix::net::send(&self.control, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Copies of its pidfd and of our end of its socket, for a task that waits for its death and for room.
    pub fn watched_by_task(&self) -> io::Result<(OwnedFd, OwnedFd)> {
        Ok((self.pidfd.try_clone()?, self.control.try_clone()?))
    }

    /// Whether it is dead. It is reaped then.
    pub fn is_gone(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends it off: nothing is left for it to do. Waited for, so that no zombie stays in a container whose first process reaps
    /// none; but not for ever, for it may have been stopped.
    pub fn dismiss(mut self) {
        let _ = self.tell(&Word::Done);
        self.wait_for_death();
        if !self.is_gone() {
            let _ = linux::kill_own_child(self.child.id() as i32);
            // Not by a blocking wait: a tracer can keep the dead process from us.
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

/// The owners that the keeper of a connection watches too, so that stopping leash (SIGSTOP) keeps no session of a dead owner. The
/// host's stdin is not among them: what to do at its end depends on what was read from it.
pub fn watched(watches: &[Watch]) -> impl Iterator<Item = &Watch> {
    watches.iter().filter(|watch| matches!(watch.owner, Owner::Process { .. } | Owner::Terminal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_delete_needs_survives_the_way_to_the_keeper() {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", HeaderValue::from_static("Bearer hush"));
        headers.append("x-two", HeaderValue::from_static("1"));
        headers.append("x-two", HeaderValue::from_bytes(b"\xff\"").expect("a value"));
        let url = "http://h:1/mcp?key=hush".parse().expect("a url");
        let ticket = Ticket { url, session_id: "s-1".to_owned(), version: Some("2025-11-25".to_owned()), headers };
        let text = serde_json::to_vec(&Word::hold("k", &Lien::of("x", 5, &ticket)).expect("JSON")).expect("JSON");
        let Ok(Word::Hold(key, lien)) = serde_json::from_slice(&text) else { panic!("it changed on the way") };
        let lien: Lien = serde_json::from_str(lien.get()).expect("a lien");
        let back = lien.ticket().expect("a ticket");
        assert_eq!((back.url, back.session_id, back.version), (ticket.url, ticket.session_id, ticket.version));
        assert_eq!(back.headers, ticket.headers);
        let entry = lien.entry(&key).expect("an entry");
        assert_eq!((&*entry.session, &*entry.url, entry.started_ms), ("k", "http://h:1/mcp", 5));
    }

    #[test]
    fn a_stream_is_not_deleted() {
        let lien = Lien::stream("x", 5, &"http://h/sse".parse().expect("a url"));
        assert!(lien.ticket().is_none() && lien.entry("k").is_none());
        assert_eq!(lien.url().map(|url| url.to_string()).as_deref(), Some("http://h/sse"));
    }
}
