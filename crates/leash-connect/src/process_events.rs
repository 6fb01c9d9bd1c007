//! The events of other processes that may end a connection: owners, signals, and the death of the keeper.
//!
//! All descriptors are in one epoll of our own, which the runtime sees as one descriptor. So each descriptor can be
//! watched for its own events: stdin only for its end and not for its data, which `pipe` reads.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use tokio::io::unix::AsyncFd;

use leash_model::{owner::Owner, receipt::Reason};
use leash_tree::owner::{self, OwnerWatch};
use leash_tree::platform::linux;
use leash_tree::tree::driver::{END_SIGNAL, END_VALUE, FORCE_VALUE};

/// An event of another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProcessEvent {
    /// An owner is gone.
    OwnerGone(Reason),
    /// The host has closed stdin. There may still be unread data.
    StdinClosed,
    /// A signal that ends the connection.
    Signal(i32),
    /// A request by `leash end`.
    EndRequested,
    /// A child process ended. It may be the keeper.
    ChildExited,
}

/// The watched owners and signals.
#[derive(Debug)]
pub(crate) struct ProcessEvents {
    epoll: AsyncFd<OwnedFd>,
    signals: OwnedFd,
    watches: Vec<OwnerWatch>,
}

impl ProcessEvents {
    /// Starts to watch `watches` and the signals of `signals`.
    pub(crate) fn watch(watches: Vec<OwnerWatch>, signals: OwnedFd) -> io::Result<ProcessEvents> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &signals, EventData::new_u64(0), EventFlags::IN)?;
        for watch in &watches {
            // Flags of poll and epoll have the same values. Errors and hang-ups are always reported.
            let flags = EventFlags::from_bits_retain(u32::from(watch.events().bits()));
            epoll::add(&epoll, watch.as_fd(), EventData::new_u64(0), flags)?;
        }
        Ok(ProcessEvents { epoll: linux::readable(epoll)?, signals, watches })
    }

    /// Waits for the next event. Cancel safe: a dropped call loses no event.
    pub(crate) async fn next(&mut self) -> ProcessEvent {
        loop {
            // Readiness stays set until `next_event` finds nothing, so simultaneous events are returned one after the
            // other. Polling an open epoll cannot fail.
            let Ok(mut guard) = self.epoll.readable().await else { continue };
            if let Some(event) = next_event(&self.signals, &mut self.watches, guard.get_inner().as_fd()) {
                return event;
            }
            guard.clear_ready();
        }
    }
}

fn next_event(signals: &OwnedFd, watches: &mut Vec<OwnerWatch>, epoll: BorrowedFd<'_>) -> Option<ProcessEvent> {
    while let Some(received) = linux::receive(signals.as_fd()) {
        match received.signal {
            // Both values mean the same here: a connection does not wait for requests in flight anyway.
            END_SIGNAL if matches!(received.queued, Some(END_VALUE | FORCE_VALUE)) => {
                return Some(ProcessEvent::EndRequested);
            }
            // A SIGUSR1 from another program has no meaning here and must not end leash.
            END_SIGNAL => {}
            libc::SIGCHLD => return Some(ProcessEvent::ChildExited),
            signal => return Some(ProcessEvent::Signal(signal)),
        }
    }
    let (index, reason) =
        watches.iter().enumerate().find_map(|(index, watch)| Some((index, owner::lost_by_now(watch)?)))?;
    let watch = watches.remove(index);
    let _ = epoll::delete(epoll, watch.as_fd());
    Some(if watch.owner == Owner::Stdin { ProcessEvent::StdinClosed } else { ProcessEvent::OwnerGone(reason) })
}
