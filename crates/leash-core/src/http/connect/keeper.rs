//! The keeper of a connection, seen from the connection: started before there is anything to lose, told of everything that
//! would have to be ended, and started again when it is gone.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Child;

use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Uri};
use rustix::event::{PollFd, PollFlags};
use rustix::net::SendFlags;
use serde::{Deserialize, Serialize};

use super::super::delete::Ticket;
use super::terms::Terms;
use super::undertaker::ROLE;
use crate::clock::{Moment, timeout_until};
use crate::limits;
use crate::owner::{Owner, Watch};
use crate::tree::command::{self, Launch};
use crate::tree::{control, identity, linux};

/// Descriptors at which a keeper finds what it inherits.
pub(super) mod fds {
    /// The control socket.
    pub(in super::super) const CONTROL: i32 = 3;
    /// The orders, a memfd.
    pub(in super::super) const ORDERS: i32 = 4;
    /// The lock of the book.
    pub(in super::super) const LOCK: i32 = 5;
    /// The owners' descriptors, from here on.
    pub(in super::super) const OWNERS: i32 = 6;
}

/// Everything a keeper knows from its beginning.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    pub(super) terms: Terms,
    pub(super) runtime_dir: PathBuf,
    /// The book's id.
    pub(super) book: String,
    /// Whose loss it watches for as well.
    pub(super) owners: Vec<Owner>,
}

/// What a keeper is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Word {
    /// This is held now; it replaces what was held before.
    Hold(Option<Lien>),
    /// The end has begun; leash sees to it.
    Ending,
    /// Nothing is left to do.
    Done,
}

/// What is held upstream, with all that its end needs. It goes from memory to memory and is written nowhere.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub(super) struct Lien {
    url: String,
    /// The session's id; `None` for the old transport, whose session ends with its connection.
    id: Option<String>,
    version: Option<String>,
    headers: Vec<(String, Vec<u8>)>,
}

impl Lien {
    /// A session that must be DELETEd.
    pub(super) fn of(ticket: &Ticket) -> Lien {
        let header = |(name, value): (&HeaderName, &HeaderValue)| (name.to_string(), value.as_bytes().to_vec());
        Lien {
            url: ticket.url.to_string(),
            id: Some(ticket.session_id.clone()),
            version: ticket.version.clone(),
            headers: ticket.headers.iter().map(header).collect(),
        }
    }

    /// A session that is over with its connection.
    pub(super) fn stream(url: &Uri) -> Lien {
        Lien { url: url.to_string(), id: None, version: None, headers: Vec::new() }
    }

    /// Its address.
    pub(super) fn url(&self) -> Option<Uri> {
        self.url.parse().ok()
    }

    /// What DELETE needs; `None` where there is nothing to DELETE.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            let mut value = HeaderValue::from_bytes(value).ok()?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        Some(Ticket { url: self.url()?, session_id: self.id.clone()?, version: self.version.clone(), headers })
    }
}

/// A keeper that was started.
#[derive(Debug)]
pub(super) struct Keeper {
    child: Child,
    control: OwnedFd,
    pidfd: OwnedFd,
}

impl Keeper {
    /// Starts one. It shares the book's lock, so that nobody takes the book for abandoned while it works.
    pub(super) fn start(
        program: &Path,
        orders: &Orders,
        lock: BorrowedFd<'_>,
        owners: &[&OwnedFd],
    ) -> io::Result<Keeper> {
        let (control, theirs) = control::pair()?;
        let copy = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 3);
        let mut given =
            vec![(theirs, fds::CONTROL), (control::write_memfd(orders)?, fds::ORDERS), (copy(lock)?, fds::LOCK)];
        for (owner, number) in owners.iter().zip(fds::OWNERS..) {
            given.push((copy(owner.as_fd())?, number));
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

    /// Tells it something. Told means kept: the message is in its socket even if we die with the next instruction.
    pub(super) fn tell(&self, word: &Word) -> io::Result<()> {
        let bytes = serde_json::to_vec(word)?;
        rustix::net::send(&self.control, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Whether it is dead. It is reaped then.
    pub(super) fn is_gone(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends it off: nothing is left for it to do. Waited for, so that no zombie stays in a container whose first process reaps
    /// nobody; but not for ever, for somebody may have stopped it.
    pub(super) fn dismiss(mut self) {
        let _ = self.tell(&Word::Done);
        let now = Moment::now();
        let patience = timeout_until(now + limits::KEEPER_ANSWER, now);
        let _ = rustix::event::poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&patience));
        if !self.is_gone() {
            let _ = linux::kill_own_child(self.child.id() as i32);
            let _ = self.child.wait();
        }
    }
}

/// The owners that a keeper watches too, so that stopping leash (SIGSTOP) does not help anybody who is gone. The host's stdin is
/// not among them: what to do at its end depends on what was read from it.
pub(super) fn watched(watches: &[Watch]) -> impl Iterator<Item = &Watch> {
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
        headers.append("x-two", HeaderValue::from_bytes(b"\xff").expect("a value"));
        let url = "http://h:1/mcp?key=hush".parse().expect("a url");
        let ticket = Ticket { url, session_id: "s-1".to_owned(), version: Some("2025-11-25".to_owned()), headers };
        let text = serde_json::to_vec(&Word::Hold(Some(Lien::of(&ticket)))).expect("JSON");
        let Ok(Word::Hold(Some(lien))) = serde_json::from_slice(&text) else { panic!("it changed on the way") };
        let back = lien.ticket().expect("a ticket");
        assert_eq!((back.url, back.session_id, back.version), (ticket.url, ticket.session_id, ticket.version));
        assert_eq!(back.headers, ticket.headers);
    }

    #[test]
    fn a_stream_is_not_deleted() {
        let lien = Lien::stream(&"http://h/sse".parse().expect("a url"));
        assert!(lien.ticket().is_none());
        assert_eq!(lien.url().map(|url| url.to_string()).as_deref(), Some("http://h/sse"));
    }
}
