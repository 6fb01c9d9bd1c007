//! Finds the processes that hold a socket: those that have it in their `/proc/PID/fd`.
//!
//! A pass over /proc takes milliseconds (see [`holders_of`]), so it runs on a blocking thread, and one pass answers for
//! all requested sockets.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::fmt;
use std::sync::Arc;

use rustix::io::Errno;

use super::PeerSocket;
use super::hints::Hints;
use super::stand_in::StandIn;
use crate::platform::descriptors::{self, Descriptors, Link};
use crate::platform::identity::HeldProcess;
use crate::platform::proc::{self, Proc};
use leash_model::identity::Identity;

/// The distance from a known descriptor within which the next one is looked for.
const BESIDE: u32 = 16;

/// The processes that hold a client's socket.
#[derive(Clone, Debug)]
pub enum Holders {
    /// These processes, at least one.
    Known(Vec<SocketHolder>),
    /// No process has it any more. The client has closed this connection, *or* it is gone. leash finds a living client
    /// again with its next request.
    None,
    /// The holders can't be found.
    Unknown(UnknownReason),
}

/// A process that holds a socket.
#[derive(Clone, Debug)]
pub struct SocketHolder {
    /// The process. Shared, so that a hundred sockets of one process cost one descriptor.
    pub process: Arc<HeldProcess>,
    /// The number of the socket among the process's descriptors.
    pub fd: u32,
}

/// A process and one of its descriptors, where a search found a socket. To remember it takes no descriptor.
#[derive(Clone, Copy, Debug)]
pub struct FoundPlace {
    process: Identity,
    fd: u32,
}

impl FoundPlace {
    /// The place where a search found this holder.
    pub fn of(holder: &SocketHolder) -> FoundPlace {
        FoundPlace { process: holder.process.id, fd: holder.fd }
    }

    /// The process, if it still holds the socket at this place. `None` says nothing about other places.
    #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "only a program with a runtime looks again"))]
    pub(super) fn holder(&self, proc: &Proc, socket: PeerSocket) -> Option<HeldProcess> {
        let held = HeldProcess::open_same(proc, self.process)?;
        // Read after the pidfd was opened: a process that still shows the socket has kept its number.
        (descriptors::link_of(self.process.pid, self.fd) == Some(Link::Socket(socket.inode))).then_some(held)
    }
}

/// The reason why an owner is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownReason {
    /// The client is on another machine, or in another network namespace.
    Remote,
    /// The process that connected is a forwarder for other clients.
    Forwarder,
    /// The process that connected sends one request only.
    Messenger,
    /// The process belongs to another user, and we are not root (or are root without `CAP_SYS_PTRACE`).
    NotPermitted,
    /// A process holds the socket, but we cannot see it: it is in another PID namespace.
    Hidden,
    /// This very process holds it.
    Ourselves,
    /// No descriptor was free to search, or to hold a process that was found.
    OutOfDescriptors,
    /// /proc is missing, belongs to another PID namespace, or can't be read.
    NoProc,
    /// The search was stopped because leash exits.
    Stopped,
}

impl fmt::Display for UnknownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UnknownReason::Remote => "not a client of this machine",
            UnknownReason::Forwarder => "connected through a forwarder",
            UnknownReason::Messenger => "connected by a one-shot program",
            UnknownReason::NotPermitted => "a process of another user",
            UnknownReason::Hidden => "held by a process that cannot be seen",
            UnknownReason::Ourselves => "held by leash itself",
            UnknownReason::OutOfDescriptors => "no descriptor was free to look",
            UnknownReason::NoProc => "no /proc of our own",
            UnknownReason::Stopped => "leash is ending",
        })
    }
}

/// The processes that hold this socket. `hints` are processes that held earlier sockets of the same clients.
pub fn holders(proc: &Proc, socket: PeerSocket, hints: &[i32]) -> Holders {
    holders_of(proc, &[socket], &mut Hints::of(hints)).pop().unwrap_or(Holders::None)
}

/// The same as [`holders`] for many sockets in one pass. The results are in the order of `sockets`.
///
/// It looks at the processes in `hints` first, beside the descriptor that was found the last time. For a process that
/// holds a socket it also looks at its parent and its descendants, which may have inherited it. If that answers
/// everything, as it does for a client that opens its next connection, it looks at nothing else. It adds the processes
/// that it found to the hints.
/// Otherwise it looks at all processes, those of the sockets' users first: the sooner leash holds a client's process,
/// the less likely the process has already ended.
///
/// Measured on Linux 6.18: 4 us for a descriptor, so 2 ms on a machine with 90 processes, and 49 ms with 500 more that
/// have 23 descriptors each. A hint takes 0.1 ms, even if a client has ten thousand connections.
///
/// A process that exits during the search is not an error, and its number can't be confused with a new process: leash
/// opens the pidfd first and then checks that the process holds the socket.
pub fn holders_of(proc: &Proc, sockets: &[PeerSocket], hints: &mut Hints) -> Vec<Holders> {
    let mut search = SocketSearch::new(proc, sockets);
    search.near(hints.all());
    search.everywhere();
    hints.remember(&search.places);
    sockets.iter().map(|socket| search.answer(*socket)).collect()
}

struct SocketSearch<'a> {
    proc: &'a Proc,
    wanted: HashMap<u64, WantedSocket>,
    /// Processes that need no look, or no second look.
    seen: HashSet<i32>,
    /// The descriptors that were found last, by process.
    places: HashMap<i32, u32>,
    /// Processes whose descriptors we may not read.
    refused: Vec<i32>,
    starved: bool,
}

/// A process under search. It is held once it has a wanted socket.
struct SearchedProcess<'a> {
    pid: i32,
    fds: &'a Descriptors,
    holder: Option<(Arc<HeldProcess>, Option<StandIn>)>,
}

struct WantedSocket {
    uid: u32,
    holders: Vec<SocketHolder>,
    /// One of the holders is a stand-in, so `holders` does not name the client's own process.
    stand_in: Option<StandIn>,
}

impl<'a> SocketSearch<'a> {
    fn new(proc: &'a Proc, sockets: &[PeerSocket]) -> SocketSearch<'a> {
        let wanted = |socket: &PeerSocket| {
            let wanted = WantedSocket { uid: socket.uid, holders: Vec::new(), stand_in: None };
            (socket.inode != 0).then_some((socket.inode, wanted))
        };
        // We hold only our own ends. With ten thousand connections, looking at them all would take longer than the
        // rest.
        let ourselves = HashSet::from([rustix::process::getpid().as_raw_pid()]);
        SocketSearch {
            proc,
            wanted: sockets.iter().filter_map(wanted).collect(),
            seen: ourselves,
            places: HashMap::new(),
            refused: Vec::new(),
            starved: false,
        }
    }

    fn is_complete(&self) -> bool {
        self.wanted.values().all(|wanted| !wanted.holders.is_empty())
    }

    /// Looks at the hints, and at the relatives of those that hold a socket: children inherit sockets.
    fn near(&mut self, hints: &[(i32, u32)]) {
        for &(hint, fd) in hints {
            if self.is_complete() {
                return;
            }
            let beside = if fd == 0 { None } else { self.peek(hint, around(fd)) };
            let holder = if self.is_complete() { beside } else { self.look(hint).or(beside) };
            if let Some(holder) = holder {
                let fd = self.places.get(&hint).copied().unwrap_or_default();
                let family = self.proc.descendants(hint).found.into_iter().chain([holder.stat.ppid]);
                for relative in family {
                    // An inherited descriptor keeps its number, or is moved to one of the first numbers.
                    self.peek(relative, around(fd).chain(0..BESIDE));
                }
            }
        }
    }

    /// Looks at all processes, unless every socket is found.
    fn everywhere(&mut self) {
        if self.is_complete() {
            return;
        }
        let numbers = self.proc.numbers();
        self.starved |= !numbers.complete;
        let uids: HashSet<u32> = self.wanted.values().map(|wanted| wanted.uid).collect();
        let is_likely =
            |pid: &i32| rustix::fs::stat(format!("/proc/{pid}")).is_ok_and(|stat| uids.contains(&stat.st_uid));
        let (likely, others): (Vec<i32>, Vec<i32>) = numbers.found.into_iter().partition(is_likely);
        for pid in likely.into_iter().chain(others) {
            self.look(pid);
        }
    }

    /// Looks at one process, once. Returns it if it holds a wanted socket.
    fn look(&mut self, pid: i32) -> Option<Arc<HeldProcess>> {
        if !self.seen.insert(pid) {
            return None;
        }
        let fds = match Descriptors::open(format_args!("/proc/{pid}")) {
            Ok(fds) => fds,
            Err(errno) => {
                self.note_failure(pid, errno);
                return None;
            }
        };
        let mut looked = SearchedProcess { pid, fds: &fds, holder: None };
        // The descriptors that were read before an error count.
        let _ = fds.each(|number, link| self.look_at(&mut looked, number, link));
        looked.holder.map(|(held, _)| held)
    }

    /// Looks at some descriptors of a process. A look at the whole process may follow.
    fn peek(&mut self, pid: i32, numbers: impl Iterator<Item = u32>) -> Option<Arc<HeldProcess>> {
        if self.seen.contains(&pid) {
            return None;
        }
        let fds = Descriptors::open(format_args!("/proc/{pid}")).ok()?;
        let mut looked = SearchedProcess { pid, fds: &fds, holder: None };
        for number in numbers {
            if let Ok(number) = CString::new(number.to_string()) {
                self.look_at(&mut looked, &number, fds.link(&number));
            }
        }
        looked.holder.map(|(held, _)| held)
    }

    /// Looks at one descriptor.
    fn look_at(&mut self, looked: &mut SearchedProcess<'_>, number: &CStr, link: Option<Link>) {
        let Some(Link::Socket(inode)) = link else { return };
        if !self.wanted.contains_key(&inode) {
            return;
        }
        if looked.holder.is_none() {
            looked.holder = self.hold(looked.pid, looked.fds, number);
        }
        let fd = number.to_str().ok().and_then(|number| number.parse().ok());
        if let (Some((held, stand_in)), Some(fd)) = (&looked.holder, fd) {
            self.found(inode, SocketHolder { process: Arc::clone(held), fd }, *stand_in);
            self.places.insert(looked.pid, fd);
        }
    }

    /// Opens the process with this number, and checks that `fds` belongs to it: an open `/proc/PID/fd` stays with its
    /// process, and is empty once that is gone. A process that still shows the socket *after* the pidfd was opened has
    /// kept its number.
    fn hold(&mut self, pid: i32, fds: &Descriptors, number: &CStr) -> Option<(Arc<HeldProcess>, Option<StandIn>)> {
        let held = HeldProcess::open(self.proc, pid);
        let exe = exe_name(pid);
        let is_there = matches!(fds.link(number), Some(Link::Socket(_)));
        match held {
            Some(held) if is_there => {
                let stand_in = StandIn::of(&held.stat.comm, exe.as_deref());
                Some((Arc::new(held), stand_in))
            }
            // The process exists but can't be held.
            None if is_there => {
                self.starved = true;
                None
            }
            _ => None,
        }
    }

    fn found(&mut self, inode: u64, found: SocketHolder, stand_in: Option<StandIn>) {
        let Some(wanted) = self.wanted.get_mut(&inode) else { return };
        // A socket may have several descriptors in one process.
        if !wanted.holders.iter().any(|holder| Arc::ptr_eq(&holder.process, &found.process)) {
            wanted.holders.push(found);
        }
        wanted.stand_in = wanted.stand_in.or(stand_in);
    }

    fn note_failure(&mut self, pid: i32, errno: Errno) {
        match errno {
            // It exited, or the hint was outdated.
            Errno::NOENT | Errno::SRCH => {}
            Errno::ACCESS | Errno::PERM => self.refused.push(pid),
            // Out of descriptors or of memory.
            _ => self.starved = true,
        }
    }

    fn answer(&self, socket: PeerSocket) -> Holders {
        let Some(wanted) = self.wanted.get(&socket.inode) else { return Holders::None };
        match (wanted.stand_in, wanted.holders.is_empty()) {
            (Some(StandIn::Forwarder), _) => Holders::Unknown(UnknownReason::Forwarder),
            (Some(StandIn::Messenger), _) => Holders::Unknown(UnknownReason::Messenger),
            // We may know some holders, but perhaps not all of them.
            (None, _) if self.starved => Holders::Unknown(UnknownReason::OutOfDescriptors),
            (None, false) => Holders::Known(wanted.holders.clone()),
            (None, true) if self.may_be_refused(wanted.uid) => Holders::Unknown(UnknownReason::NotPermitted),
            (None, true) => Holders::None,
        }
    }

    /// True if a process of this user may be hidden from us: its descriptors only, or (`hidepid`) the whole process.
    fn may_be_refused(&self, uid: u32) -> bool {
        let me = rustix::process::geteuid();
        let others = !me.is_root() && me.as_raw() != uid;
        others || self.refused.iter().any(|&pid| has_uid(pid, uid))
    }
}

/// True if this very process has the socket. With ten thousand descriptors it takes 40 ms.
#[cfg(feature = "tokio")]
pub(super) fn is_ours(socket: PeerSocket) -> bool {
    let ours = Descriptors::open("/proc/self");
    ours.is_ok_and(|fds| fds.any(|_, link| link == Some(Link::Socket(socket.inode))) == Ok(true))
}

/// The descriptor numbers beside one: a client's connections have consecutive numbers.
fn around(fd: u32) -> impl Iterator<Item = u32> {
    fd.saturating_sub(BESIDE)..=fd.saturating_add(BESIDE)
}

fn exe_name(pid: i32) -> Option<String> {
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let name = path.file_name()?.to_string_lossy();
    // An update may have replaced the file while it runs.
    Some(name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned())
}

/// True if a process runs as this user. The owner of its directory is not enough: the directory of a process that we
/// may not look into belongs to root.
fn has_uid(pid: i32, uid: u32) -> bool {
    proc::numbers_of_line(&format!("/proc/{pid}/status"), "Uid:").contains(&uid)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn socket_without_an_inode_is_not_searched() {
        let proc = Proc::own().unwrap();
        let search = SocketSearch::new(&proc, &[PeerSocket { inode: 0, uid: 0 }]);
        assert!(search.is_complete());
        assert!(matches!(holders(&proc, PeerSocket { inode: 0, uid: 0 }, &[1]), Holders::None));
    }

    /// Our own descriptors are never a result: the gateway does not own its clients.
    #[test]
    fn own_process_is_never_a_holder() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = PeerSocket {
            inode: rustix::fs::fstat(&listener).unwrap().st_ino,
            uid: rustix::process::geteuid().as_raw(),
        };
        let me = rustix::process::getpid().as_raw_pid();
        let found = holders(&Proc::own().unwrap(), socket, &[me]);
        assert!(!matches!(found, Holders::Known(_)), "{found:?}");
    }

    #[test]
    fn has_uid_compares_the_users_of_a_process() {
        let me = rustix::process::getpid().as_raw_pid();
        let uid = rustix::process::geteuid().as_raw();
        assert!(has_uid(me, uid));
        assert!(!has_uid(me, uid ^ 0x5555));
        assert!(!has_uid(i32::MAX, uid));
    }
}
