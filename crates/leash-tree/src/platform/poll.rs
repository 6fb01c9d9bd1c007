//! Waiting for descriptors, also under a limit on descriptors that is lower than their number: then poll(2) refuses to work (EINVAL),
//! and every process of the same user can lower the limit of ours.

use rustix::event::PollFd;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::Timespec;

use leash_model::clock::{Moment, timeout_until};
use leash_model::limits;

/// What a wait brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// The answers are in the descriptors.
    Clear,
    /// No descriptor may be polled: nothing is known of any of them.
    Blind,
}

/// Waits until a descriptor has something to tell, at most for `timeout`. It may return earlier without news.
pub fn poll(fds: &mut [PollFd<'_>], timeout: Option<&Timespec>) -> Sight {
    if rustix::event::poll(fds, timeout) != Err(Errno::INVAL) {
        return Sight::Clear;
    }
    raise_limit();
    let most =
        getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let look = |piece: &mut [PollFd<'_>]| rustix::event::poll(piece, Some(&at_once)).is_ok_and(|ready| ready > 0);
    // Every piece is looked at, also after one that has news.
    let has_news = fds.chunks_mut(most.max(1)).map(look).fold(false, |any, one| any | one);
    if !has_news {
        let now = Moment::now();
        let pause = timeout_until(now + limits::STARVED_LOOK, now);
        let pause = timeout.map_or(pause, |timeout| pause.min(*timeout));
        let _ = rustix::event::poll(&mut [], Some(&pause));
    }
    if most == 0 { Sight::Blind } else { Sight::Clear }
}

/// Makes the limit as high as it may be.
fn raise_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
