//! Misbehaving stdio servers. Every process of a tree holds the census FIFO open for writing, so its reader sees a
//! hang-up when, and only when, the last of them is dead.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, pause, poll};
use rustix::process::{Pid, WaitOptions, setsid, waitpid};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::mcp;
use crate::puppet;
use crate::roll_call::{Census, Muster};
use crate::sys::{Answer, Fork, answer, exit_main_thread, exit_now, fork};

/// The kinds of trees, as written on the command line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Polite,
    IgnoresEof,
    Stubborn,
    Setsid,
    Daemon,
    Chain,
    Mixed,
    FullStdout,
    Hoppers,
    Bomb,
    Leaver,
    Headless,
    Fosters,
    Joiner,
}

impl Kind {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "polite" => Self::Polite,
            "ignores-eof" => Self::IgnoresEof,
            "stubborn" => Self::Stubborn,
            "setsid" => Self::Setsid,
            "daemon" => Self::Daemon,
            "chain" => Self::Chain,
            "mixed" => Self::Mixed,
            "full-stdout" => Self::FullStdout,
            "hoppers" => Self::Hoppers,
            "bomb" => Self::Bomb,
            "leaver" => Self::Leaver,
            "headless" => Self::Headless,
            "fosters" => Self::Fosters,
            "joiner" => Self::Joiner,
            _ => return None,
        })
    }

    /// How many processes the tree has, the leader included, unless `--size` says otherwise.
    fn usual_size(self) -> usize {
        match self {
            Self::Polite | Self::IgnoresEof | Self::Stubborn | Self::FullStdout => 1,
            Self::Setsid | Self::Daemon | Self::Leaver | Self::Headless => 2,
            Self::Fosters | Self::Joiner => 3,
            Self::Chain | Self::Mixed => 20,
            Self::Hoppers => 65,
            // The leader and the first of them; how many there will be is the kernel's business.
            Self::Bomb => 2,
        }
    }

    /// What the leader does about the end of its input and about signals.
    fn leader_manners(self) -> Manners {
        match self {
            Self::Stubborn | Self::Chain | Self::Mixed => Manners::Stubborn,
            Self::IgnoresEof => Manners::IgnoresEof,
            _ => Manners::Polite,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Manners {
    /// Exits at the end of its input and by any signal.
    Polite,
    /// Exits by any signal.
    IgnoresEof,
    /// Exits by SIGKILL.
    Stubborn,
}

/// What the command line asked for.
pub(crate) struct Order {
    pub(crate) kind: Kind,
    pub(crate) size: Option<usize>,
    pub(crate) census: PathBuf,
    /// All of the tree on one CPU: a `bomb` and `hoppers` leave the others to the rest of the machine.
    pub(crate) one_cpu: bool,
    /// Where a `leaver` goes: a cgroup directory.
    pub(crate) to: Option<PathBuf>,
    /// A process in the PID namespace that a `joiner` enters.
    pub(crate) into: Option<i32>,
    /// The process that a `joiner` leaves in there opens a session of its own.
    pub(crate) own_session: bool,
    /// The leader answers as an MCP server; otherwise it sends back what it gets.
    pub(crate) mcp: bool,
    /// The leader does what it is told at this Unix socket.
    pub(crate) puppet: Option<PathBuf>,
}

/// Grows the tree and plays its leader.
pub(crate) fn run(order: &Order) -> io::Result<()> {
    let census = Census::open(&order.census)?;
    let manners = order.kind.leader_manners();
    behave(manners, "zoo-leader");
    census.say("leader");

    if order.one_cpu {
        stay_on_one_cpu()?;
    }
    let size = order.size.unwrap_or_else(|| order.kind.usual_size()).max(1);
    let muster = Muster::new()?;
    let expected = grow(order, size - 1, &census, &muster)?;
    muster.wait(expected)?;

    if order.kind == Kind::FullStdout {
        fill(&rustix::stdio::stdout())?;
    }
    census.ready(size);
    if order.kind == Kind::FullStdout {
        return write_for_ever();
    }
    if let Some(socket) = &order.puppet {
        puppet::serve(socket)?
    } else if order.mcp {
        mcp::serve()?
    } else {
        echo_until_eof(&census)?
    }
    if manners != Manners::Polite {
        rest();
    }
    Ok(())
}

/// Forks the `others` besides the leader. Returns how many of them will report to `muster`.
fn grow(order: &Order, others: usize, census: &Census, muster: &Muster) -> io::Result<usize> {
    match order.kind {
        Kind::Polite | Kind::IgnoresEof | Kind::Stubborn | Kind::FullStdout => return Ok(0),
        Kind::Setsid => repeat(others, || helper(census, muster))?,
        Kind::Daemon => repeat(others, || daemon(census, muster))?,
        Kind::Chain => chain(others, census, muster)?,
        Kind::Mixed => mixed(others, census, muster)?,
        Kind::Hoppers => {
            check_bound()?;
            hoppers(others, census, muster)?;
        }
        Kind::Leaver => {
            let to = order.to.as_deref().ok_or_else(|| bad("leaver needs --to CGROUP"))?;
            repeat(others, || leaver(to, census, muster))?;
        }
        Kind::Headless => repeat(others, || headless(census, muster))?,
        Kind::Fosters => fosters(census, muster)?,
        Kind::Joiner => {
            let into = order.into.ok_or_else(|| bad("joiner needs --into PID"))?;
            joiner(into, order.own_session, census, muster)?;
        }
        Kind::Bomb => {
            check_bound()?;
            bomb(census, muster)?;
            // One report is enough: it is sent when the kernel refuses to make another process.
            return Ok(1);
        }
    }
    Ok(others)
}

fn repeat(times: usize, mut make: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    (0..times).try_for_each(|_| make())
}

/// A child in the leader's group.
fn plain(census: &Census, muster: &Muster) -> io::Result<()> {
    if let Fork::Child = fork()? {
        member("plain", census, muster);
    }
    Ok(())
}

/// A child in a session of its own.
fn helper(census: &Census, muster: &Muster) -> io::Result<()> {
    if let Fork::Child = fork()? {
        leave_session();
        member("setsid", census, muster);
    }
    Ok(())
}

/// A grandchild in a session of its own, whose parent is gone.
fn daemon(census: &Census, muster: &Muster) -> io::Result<()> {
    match fork()? {
        Fork::Parent(between) => reap(between),
        Fork::Child => {
            leave_session();
            if let Ok(Fork::Child) = fork() {
                member("daemon", census, muster);
            }
            exit_now(0);
        }
    }
}

/// Each the parent of the next.
fn chain(length: usize, census: &Census, muster: &Muster) -> io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    if let Fork::Child = fork()? {
        if chain(length - 1, census, muster).is_err() {
            exit_now(1);
        }
        member("chain", census, muster);
    }
    Ok(())
}

/// A quarter of each, as in the experiments behind the design.
fn mixed(others: usize, census: &Census, muster: &Muster) -> io::Result<()> {
    let quarter = others / 4;
    repeat(quarter + others % 4, || plain(census, muster))?;
    repeat(quarter, || helper(census, muster))?;
    repeat(quarter, || daemon(census, muster))?;
    chain(quarter, census, muster)
}

/// Processes that are others at every moment: fork, parent exits, for ever. They all start when the last of them exists:
/// before that, the first ones could use up the bound.
fn hoppers(number: usize, census: &Census, muster: &Muster) -> io::Result<()> {
    let (gate, closed) = rustix::pipe::pipe()?;
    for _ in 0..number {
        if let Fork::Parent(_) = fork()? {
            continue;
        }
        drop(closed);
        behave(Manners::Stubborn, "zoo-hopper");
        census.say("hopper");
        muster.report();
        // The end of the pipe is the leader's word that all are there.
        let _ = rustix::io::read(&gate, &mut [0; 1]);
        hop();
    }
    Ok(())
}

fn hop() -> ! {
    loop {
        leave_session();
        match fork() {
            Ok(Fork::Parent(_)) => exit_now(0),
            Ok(Fork::Child) => {}
            Err(_) => rustix::thread::sched_yield(),
        }
    }
}

/// Every process forks as fast as it can, each in a session of its own.
fn bomb(census: &Census, muster: &Muster) -> io::Result<()> {
    if let Fork::Parent(_) = fork()? {
        return Ok(());
    }
    behave(Manners::Stubborn, "zoo-bomb");
    census.say("bomb");
    let mut reported = false;
    loop {
        match fork() {
            Ok(Fork::Parent(_)) => {}
            Ok(Fork::Child) => leave_session(),
            Err(_) => {
                if !reported {
                    muster.report();
                    reported = true;
                }
                rustix::thread::sched_yield();
            }
        }
    }
}

/// Such a tree must have been put in a small place by somebody else, and the place has a name: this is the difference between
/// a test and a reboot. Hoppers too: they leave zombies faster than a parent on the same two CPUs can reap them.
fn check_bound() -> io::Result<()> {
    // With /proc of another namespace there is no `self`, and such a tree is not wanted there.
    let mine = fs::read_to_string("/proc/self/cgroup")?;
    match mine.contains("/leash-test-bound-") {
        true => Ok(()),
        false => Err(bad("this tree only grows in a cgroup `leash-test-bound-*` with a pids.max")),
    }
}

/// A child in a session of its own and in another cgroup.
fn leaver(to: &Path, census: &Census, muster: &Muster) -> io::Result<()> {
    if let Fork::Child = fork()? {
        leave_session();
        // "0" is the writer, whatever its number is in whichever namespace.
        if fs::write(to.join("cgroup.procs"), "0").is_err() {
            exit_now(1);
        }
        member("leaver", census, muster);
    }
    Ok(())
}

/// A child in the leader's group whose main thread has exited while another thread lives. It leaves at SIGTERM.
fn headless(census: &Census, muster: &Muster) -> io::Result<()> {
    if let Fork::Child = fork()? {
        behave(Manners::IgnoresEof, "zoo-headless");
        let main = rustix::thread::gettid();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                wait_for_death_of(main);
                census.say("headless");
                muster.report();
                rest()
            });
            // Never returns: the scope, and with it what the thread borrows, stays.
            exit_main_thread()
        })
    }
    Ok(())
}

/// Waits until the thread is a zombie: who reports before that may be looked at too early.
fn wait_for_death_of(thread: Pid) {
    let path = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    while !fs::read_to_string(&path)
        .is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')))
    {
        rustix::thread::sched_yield();
    }
}

/// A child named `zoo-foster` with a child of its own that has another name.
fn fosters(census: &Census, muster: &Muster) -> io::Result<()> {
    if let Fork::Child = fork()? {
        if plain(census, muster).is_err() {
            exit_now(1);
        }
        member("foster", census, muster);
    }
    Ok(())
}

/// A child that forks into the PID namespace of `into`, and leaves an orphan there, which the first process of that namespace adopts.
fn joiner(into: i32, own_session: bool, census: &Census, muster: &Muster) -> io::Result<()> {
    if let Fork::Parent(_) = fork()? {
        return Ok(());
    }
    let joined = join_namespaces(into).and_then(|()| fork());
    match joined {
        Ok(Fork::Parent(between)) => {
            let _ = reap(between);
            member("joiner", census, muster);
        }
        Ok(Fork::Child) => {
            if let Ok(Fork::Child) = fork() {
                if own_session {
                    leave_session();
                }
                member("stray", census, muster);
            }
            exit_now(0);
        }
        Err(error) => {
            census.say(&format!("cannot join: {error}"));
            exit_now(1);
        }
    }
}

/// Children from now on are born in the PID namespace of `into`. Without privilege its user namespace is entered first.
fn join_namespaces(into: i32) -> io::Result<()> {
    let open = |name: &str| fs::File::open(format!("/proc/{into}/ns/{name}"));
    let pid = open("pid")?;
    if !rustix::process::geteuid().is_root() {
        set_namespace(&open("user")?)?;
    }
    set_namespace(&pid)
}

fn set_namespace(namespace: &fs::File) -> io::Result<()> {
    Ok(rustix::thread::move_into_link_name_space(namespace.as_fd(), None)?)
}

/// The life of a process that is not the leader: it ignores everything that can be ignored.
fn member(name: &str, census: &Census, muster: &Muster) -> ! {
    behave(Manners::Stubborn, &format!("zoo-{name}"));
    census.say(name);
    muster.report();
    rest()
}

fn rest() -> ! {
    loop {
        pause();
    }
}

fn behave(manners: Manners, name: &str) {
    let wanted = match manners {
        Manners::Stubborn => Answer::Ignore,
        Manners::Polite | Manners::IgnoresEof => Answer::Default,
    };
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGPIPE] {
        answer(signal, wanted);
    }
    // The one order that every leader obeys, for the tests in which a leader exits by itself.
    let usr1 = match name {
        "zoo-leader" => Answer::Leave,
        _ => Answer::Ignore,
    };
    answer(libc::SIGUSR1, usr1);
    if let Ok(name) = std::ffi::CString::new(name) {
        // The name is only for reading a list of survivors.
        let _ = rustix::thread::set_name(&name);
    }
}

fn stay_on_one_cpu() -> io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let last = (0..CpuSet::MAX_CPU).rev().find(|&cpu| allowed.is_set(cpu));
    let mut one = CpuSet::new();
    one.set(last.ok_or_else(|| bad("there is no CPU"))?);
    Ok(sched_setaffinity(None, &one)?)
}

fn leave_session() {
    // A group leader is refused, and a group leader already has what is wanted here.
    let _ = setsid();
}

fn reap(pid: Pid) -> io::Result<()> {
    waitpid(Some(pid), WaitOptions::empty())?;
    Ok(())
}

fn echo_until_eof(census: &Census) -> io::Result<()> {
    let mut buffer = [0; 65536];
    loop {
        let got = match rustix::io::read(rustix::stdio::stdin(), &mut buffer) {
            Ok(0) => return Ok(()),
            Ok(got) => got,
            Err(rustix::io::Errno::INTR) => continue,
            // A terminal that is gone, or no stdin at all, is the end of input as well.
            Err(_) => return Ok(()),
        };
        if write_all(&rustix::stdio::stdout(), &buffer[..got]).is_err() {
            census.say("stdout-closed");
        }
    }
}

/// Writes until one more byte would block, without touching the flags that the host shares.
fn fill(out: &impl AsFd) -> io::Result<()> {
    while writable(out)? {
        rustix::io::write(out, &[b'x'; 4096])?;
    }
    Ok(())
}

fn writable(out: &impl AsFd) -> io::Result<bool> {
    let mut fds = [PollFd::new(out, PollFlags::OUT)];
    poll(&mut fds, Some(&Timespec::default()))?;
    Ok(fds[0].revents().contains(PollFlags::OUT))
}

fn write_for_ever() -> io::Result<()> {
    loop {
        write_all(&rustix::stdio::stdout(), &[b'x'; 4096])?;
    }
}

pub(crate) fn write_all(out: &impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(out, bytes) {
            Ok(wrote) => bytes = &bytes[wrote..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn bad(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text.to_owned())
}
