//! Everything that may end a connection from outside: owners, signals, and the keeper's death.
//!
//! All of it hangs in one epoll of our own, which the runtime sees as one descriptor. So each thing is watched for exactly what
//! it can tell: stdin for its end and not for its data, which another place reads.

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

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// An owner is gone.
    Lost(Reason),
    /// The host will write no more; what it has written may still be unread.
    InputOver,
    /// A signal that means the end.
    Signal(i32),
    /// `leash end`.
    Requested,
    /// The keeper is gone, perhaps.
    Child,
}

/// Watches.
#[derive(Debug)]
pub(super) struct Watchtower {
    epoll: AsyncFd<OwnedFd>,
    signals: OwnedFd,
    watches: Vec<Watch>,
}

impl Watchtower {
    /// Watches over `watches`, and over the signals that come out of `signals`.
    pub(super) fn build(watches: Vec<Watch>, signals: OwnedFd) -> io::Result<Watchtower> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &signals, EventData::new_u64(0), EventFlags::IN)?;
        for watch in &watches {
            // Flags of poll and epoll have the same values; what is always told need not be asked for.
            let flags = EventFlags::from_bits_retain(u32::from(watch.events().bits()));
            epoll::add(&epoll, watch.as_fd(), EventData::new_u64(0), flags)?;
        }
        Ok(Watchtower { epoll: linux::readable(epoll)?, signals, watches })
    }

    /// Waits for the next thing. Nothing is lost when the wait is given up.
    pub(super) async fn next(&mut self) -> Seen {
        loop {
            // Readiness is kept until a look has found nothing, so what happens at once is told one after the other. An epoll
            // can't fail to be polled while it is open.
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
            // There is no grace to go without: what is in flight is not waited for anyway.
            END_SIGNAL if matches!(received.queued, Some(END_VALUE | FORCE_VALUE)) => return Some(Seen::Requested),
            // Somebody else's SIGUSR1 has no meaning here; it may not end leash either.
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
