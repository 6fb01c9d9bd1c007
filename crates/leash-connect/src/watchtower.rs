//! Watches everything outside that may end a connection: owners, signals, and the keeper's death.
//!
//! All descriptors are in one epoll of our own, which the runtime sees as one descriptor. So each descriptor can be
//! watched for its own events: stdin only for its end and not for its data, which `pipe` reads.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use tokio::io::unix::AsyncFd;

use leash_model::owner::Owner;
use leash_model::receipt::Reason;
use leash_tree::owner;
use leash_tree::owner::Watch;
use leash_tree::platform::linux;
use leash_tree::tree::warden::{END_SIGNAL, END_VALUE, FORCE_VALUE};

/// An event from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// An owner is gone.
    Lost(Reason),
    /// The host has closed stdin. There may still be unread data.
    InputOver,
    /// A signal that ends the connection.
    Signal(i32),
    /// A request by `leash end`.
    Requested,
    /// A child process ended. It may be the keeper.
    Child,
}

/// The watched owners and signals.
#[derive(Debug)]
pub(super) struct Watchtower {
    epoll: AsyncFd<OwnedFd>,
    signals: OwnedFd,
    watches: Vec<Watch>,
}

impl Watchtower {
    /// Starts to watch `watches` and the signals of `signals`.
    pub(super) fn build(watches: Vec<Watch>, signals: OwnedFd) -> io::Result<Watchtower> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &signals, EventData::new_u64(0), EventFlags::IN)?;
        for watch in &watches {
            // Flags of poll and epoll have the same values. Errors and hang-ups are always reported.
            let flags = EventFlags::from_bits_retain(u32::from(watch.events().bits()));
            epoll::add(&epoll, watch.as_fd(), EventData::new_u64(0), flags)?;
        }
        Ok(Watchtower { epoll: linux::readable(epoll)?, signals, watches })
    }

    /// Waits for the next event. Cancel safe: a dropped call loses no event.
    pub(super) async fn next(&mut self) -> Seen {
        loop {
            // Readiness stays set until `look` finds nothing, so simultaneous events are returned one after the other.
            // Polling an open epoll cannot fail.
            let Ok(mut guard) = self.epoll.readable().await else { continue };
            if let Some(seen) = look(&self.signals, &mut self.watches, guard.get_inner().as_fd()) {
                return seen;
            }
            guard.clear_ready();
        }
    }
}

fn look(signals: &OwnedFd, watches: &mut Vec<Watch>, epoll: BorrowedFd<'_>) -> Option<Seen> {
    while let Some(received) = linux::receive(signals.as_fd()) {
        match received.signal {
            // Both values mean the same here: a connection does not wait for requests in flight anyway.
            END_SIGNAL if matches!(received.queued, Some(END_VALUE | FORCE_VALUE)) => return Some(Seen::Requested),
            // A SIGUSR1 from another program has no meaning here and must not end leash.
            END_SIGNAL => {}
            libc::SIGCHLD => return Some(Seen::Child),
            signal => return Some(Seen::Signal(signal)),
        }
    }
    let (index, reason) =
        watches.iter().enumerate().find_map(|(index, watch)| Some((index, owner::lost_by_now(watch)?)))?;
    let watch = watches.remove(index);
    let _ = epoll::delete(epoll, watch.as_fd());
    Some(if watch.owner == Owner::Stdin { Seen::InputOver } else { Seen::Lost(reason) })
}
