//! Looks when the ledger has changed, and once a second for what no event tells: memory, requests in flight, and the
//! processes of other programs.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use leash_model::clock::{Moment, timeout_until};
use leash_model::feed::FeedLook;
use leash_tree::ledger;
use leash_tree::platform::poll::PollSet;
use rustix::event::PollFlags;
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};

use super::Looker;
use crate::places;

/// The time between two looks when nothing happens.
const TICK: Duration = Duration::from_secs(1);

/// Several files change when a session begins or ends. One look after this time sees all of them.
const QUIET: Duration = Duration::from_millis(100);

/// The reason for a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookCause {
    /// A second has passed.
    Tick,
    /// A file of the ledger has changed.
    Ledger,
}

/// Looks until `take` returns false, or one of the descriptors in `stop` is ready or hung up.
pub(crate) fn follow(mut looker: Looker, stop: &[(BorrowedFd<'_>, PollFlags)], mut take: impl FnMut(FeedLook) -> bool) {
    let watch = LedgerWatch::new();
    let (mut cause, mut tick) = (LookCause::Tick, Moment::now());
    loop {
        // A directory may have been made since.
        watch.renew();
        if !take(looker.look(cause)) {
            return;
        }
        let now = Moment::now();
        if cause == LookCause::Tick {
            tick = now + TICK;
        }
        cause = match watch.wait(stop, now + QUIET, tick) {
            Some(cause) => cause,
            None => return,
        };
    }
}

/// Tells when a file of the ledger changes. Without inotify, only the tick remains.
struct LedgerWatch(Option<OwnedFd>);

/// The sources that end a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WakeSource {
    Stop,
    Ledger,
}

impl LedgerWatch {
    fn new() -> LedgerWatch {
        LedgerWatch(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok())
    }

    /// Watches all directories that exist; for one that is watched, the kernel does nothing.
    fn renew(&self) {
        let Some(fd) = &self.0 else { return };
        let changes = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MODIFY | WatchFlags::MOVED_TO;
        // A receipt is written before its record is removed, so receipts need no watch.
        for dir in ledger::watched_dirs(&places::places()) {
            // A directory that does not exist is tried again at the next look.
            let _ = inotify::add_watch(fd, &dir, changes);
        }
    }

    /// Waits for a change of the ledger, and at most until `tick`. A change is told at `quiet` at the earliest. `None` when
    /// it is time to stop.
    fn wait(&self, stop: &[(BorrowedFd<'_>, PollFlags)], quiet: Moment, tick: Moment) -> Option<LookCause> {
        let mut has_changed = false;
        loop {
            let now = Moment::now();
            let until = if has_changed { quiet.min(tick) } else { tick };
            if now >= until {
                self.drain();
                return Some(if now >= tick { LookCause::Tick } else { LookCause::Ledger });
            }
            let mut set = PollSet::default();
            stop.iter().for_each(|(fd, events)| set.add(WakeSource::Stop, *fd, *events));
            if let Some(fd) = self.0.as_ref().filter(|_| !has_changed) {
                set.add(WakeSource::Ledger, fd.as_fd(), PollFlags::IN);
            }
            let ready = set.wait(Some(&timeout_until(until, now))).unwrap_or_default();
            if ready.iter().any(|(source, _)| *source == WakeSource::Stop) {
                return None;
            }
            has_changed |= !ready.is_empty();
        }
    }

    fn drain(&self) {
        let Some(fd) = &self.0 else { return };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(fd, &mut buffer);
        while reader.next().is_ok() {}
    }
}
