//! Misbehaving stdio servers. Every process of a tree holds the census FIFO open for writing, so its reader sees a
//! hang-up when, and only when, the last of them is dead.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, pause, poll};
use rustix::process::{Pid, Signal, WaitOptions, set_parent_process_death_signal, setsid, waitpid};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::attack::{Attack, Leash};
use crate::escapes;
use crate::mcp;
use crate::puppet;
use crate::roll_call::{Census, Muster};
use crate::sys::{Answer, Fork, answer, exit_now, fork};
use crate::write::write_all;

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
    Attacker,
    Headless,
    HeadlessMember,
    Foreign,
    HeadlessChild,
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
            "attacker" => Self::Attacker,
            "headless" => Self::Headless,
            "headless-member" => Self::HeadlessMember,
            "foreign" => Self::Foreign,
            "headless-child" => Self::HeadlessChild,
            "fosters" => Self::Fosters,
            "joiner" => Self::Joiner,
            _ => return None,
        })
    }

    /// The number of processes of the tree, including the leader, unless `--size` sets it.
    fn usual_size(self) -> usize {
        match self {
            Self::Polite | Self::IgnoresEof | Self::Stubborn | Self::FullStdout | Self::Headless => 1,
            Self::Setsid | Self::Daemon | Self::Leaver | Self::Attacker => 2,
            Self::HeadlessMember | Self::HeadlessChild => 2,
            Self::Fosters | Self::Joiner => 3,
            Self::Foreign => 4,
            Self::Chain | Self::Mixed => 20,
            Self::Hoppers => 65,
            // The leader and its first child. How many more there will be depends on the kernel.
            Self::Bomb => 2,
        }
    }

    /// The leader's reaction to the end of its input and to signals.
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

/// The parsed command line.
pub(crate) struct Order {
    pub(crate) kind: Kind,
    pub(crate) size: Option<usize>,
    pub(crate) census: PathBuf,
    /// The whole tree runs on one CPU: `bomb` and `hoppers` leave the other CPUs to the rest of the machine.
    pub(crate) one_cpu: bool,
    /// MiB of memory that the leader uses and that the kernel can't compress.
    pub(crate) memory: usize,
    /// For a `leaver`, the cgroup directory that it moves to. For a `foreign` process, a pid of the PID namespace that
    /// it enters.
    pub(crate) to: Option<PathBuf>,
    /// The attack of an `attacker` on its leash.
    pub(crate) attack: Option<Attack>,
    /// The pid of a process in the PID namespace that a `joiner` enters.
    pub(crate) into: Option<i32>,
    /// The process that a `joiner` leaves there opens its own session.
    pub(crate) own_session: bool,
    /// The leader answers as an MCP server; otherwise it echoes its input.
    pub(crate) mcp: bool,
    /// The leader is controlled through this Unix socket.
    pub(crate) puppet: Option<PathBuf>,
}

/// Starts the tree and runs its leader.
pub(crate) fn run(order: &Order) -> io::Result<()> {
    let census = Census::open(&order.census)?;
    let manners = order.kind.leader_manners();
    behave(manners, "zoo-leader");
    census.say("leader");

    if order.one_cpu {
        stay_on_one_cpu()?;
    }
    let ballast = incompressible(order.memory);
    let size = order.size.unwrap_or_else(|| order.kind.usual_size()).max(1);
    let muster = Muster::new()?;
    let expected = grow(order, size - 1, &census, &muster)?;
    muster.wait(expected)?;

    if order.kind == Kind::FullStdout {
        fill(&rustix::stdio::stdout())?;
    }
    if order.kind == Kind::Headless {
        return escapes::without_main_thread(move || {
            census.ready(size);
            // Such a server exits at the end of its input, even if reading failed.
            let _ = mcp::serve();
            exit_now(0);
        });
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
    drop(std::hint::black_box(ballast));
    Ok(())
}

/// So many MiB of pseudo-random numbers.
fn incompressible(mib: usize) -> Vec<u64> {
    // xorshift64
    let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ u64::from(std::process::id());
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..mib << 17).map(next).collect()
}

/// Forks the `others` besides the leader. Returns the number of processes that will report to `muster`.
fn grow(order: &Order, others: usize, census: &Census, muster: &Muster) -> io::Result<usize> {
    match order.kind {
        Kind::Polite | Kind::IgnoresEof | Kind::Stubborn | Kind::FullStdout | Kind::Headless => return Ok(0),
        Kind::HeadlessMember => repeat(others, || headless(Manners::Stubborn, census, muster))?,
        // It exits at SIGTERM.
        Kind::HeadlessChild => repeat(others, || headless(Manners::IgnoresEof, census, muster))?,
        Kind::Foreign => {
            let to = order.to.as_deref().and_then(Path::to_str).and_then(|to| to.parse().ok());
            foreign(to.ok_or_else(|| bad("foreign needs --to PID"))?, census, muster)?;
            // The process in between reports only if the kernel refuses to enter the namespace.
            return Ok(1);
        }
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
        Kind::Attacker => {
            let attack = order.attack.ok_or_else(|| bad("attacker needs --attack KIND"))?;
            repeat(others, || attacker(attack, census, muster))?;
        }
        Kind::Fosters => fosters(census, muster)?,
        Kind::Joiner => {
            let into = order.into.ok_or_else(|| bad("joiner needs --into PID"))?;
            joiner(into, order.own_session, census, muster)?;
        }
        Kind::Bomb => {
            check_bound()?;
            bomb(census, muster)?;
            // One report is enough: the process sends it when the kernel refuses another fork.
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

/// A child in its own session.
fn helper(census: &Census, muster: &Muster) -> io::Result<()> {
    if let Fork::Child = fork()? {
        leave_session();
        member("setsid", census, muster);
    }
    Ok(())
}

/// A grandchild in its own session, whose parent has exited.
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

/// A chain of processes: each is the parent of the next.
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

/// A quarter of each kind, as in the experiments behind the design.
fn mixed(others: usize, census: &Census, muster: &Muster) -> io::Result<()> {
    let quarter = others / 4;
    repeat(quarter + others % 4, || plain(census, muster))?;
    repeat(quarter, || helper(census, muster))?;
    repeat(quarter, || daemon(census, muster))?;
    chain(quarter, census, muster)
}

/// Processes that change their pid all the time: each forks and exits, for ever. They start when the last of them
/// exists; otherwise the first ones could use up the pids limit.
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
        // The leader closes the pipe when all processes exist.
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

/// Every process forks as fast as it can, each in its own session.
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

/// Refuses to start such a tree outside a cgroup with a pids limit and the right name: otherwise a test could make the
/// machine unusable. This includes hoppers: they leave zombies faster than a parent on the same two CPUs can reap them.
fn check_bound() -> io::Result<()> {
    // With the `/proc` of another namespace `self` does not exist, and such a tree must not run there.
    let mine = fs::read_to_string("/proc/self/cgroup")?;
    match mine.contains("/leash-test-bound-") {
        true => Ok(()),
        false => Err(bad("this tree only grows in a cgroup `leash-test-bound-*` with a pids.max")),
    }
}

/// A child in its own session and in another cgroup.
fn leaver(to: &Path, census: &Census, muster: &Muster) -> io::Result<()> {
    if let Fork::Child = fork()? {
        leave_session();
        // "0" stands for the writing process, in every PID namespace.
        if fs::write(to.join("cgroup.procs"), "0").is_err() {
            exit_now(1);
        }
        member("leaver", census, muster);
    }
    Ok(())
}

/// A child in its own session, which attacks leash and stays. The leader dies with its keeper, the child does not.
fn attacker(attack: Attack, census: &Census, muster: &Muster) -> io::Result<()> {
    let leash = Leash::of_this_server()?;
    if let Fork::Child = fork()? {
        leave_session();
        behave(Manners::Stubborn, "zoo-attacker");
        census.say("attacker");
        if let Err(error) = leash.attack(attack, || muster.report()) {
            census.say(&format!("cannot attack: {error}"));
            exit_now(1);
        }
        rest();
    }
    Ok(())
}

/// A child in the leader's group whose main thread has exited while another thread goes on.
fn headless(manners: Manners, census: &Census, muster: &Muster) -> io::Result<()> {
    if let Fork::Child = fork()? {
        behave(manners, "zoo-headless");
        census.say("headless");
        let (census, muster) = (census.again()?, muster.again()?);
        return escapes::without_main_thread(move || {
            muster.report();
            let _census = census;
            rest()
        });
    }
    Ok(())
}

/// A child in its own session whose parent is in the PID namespace of process `to`, as it is itself. When that parent
/// dies, the kernel gives the child to the first process of the namespace. If the namespace cannot be entered, there is
/// no such child.
fn foreign(to: i32, census: &Census, muster: &Muster) -> io::Result<()> {
    if let Fork::Child = fork()? {
        behave(Manners::Polite, "zoo-gate");
        die_with_parent();
        match escapes::enter_namespace_of(to).and_then(|()| fork()) {
            Ok(Fork::Child) => foreign_parent(census, muster),
            Ok(Fork::Parent(_)) => rest(),
            Err(_) => {
                muster.report();
                exit_now(0);
            }
        }
    }
    Ok(())
}

/// The first process of a tree in a foreign namespace.
fn foreign_parent(census: &Census, muster: &Muster) -> ! {
    die_with_parent();
    match fork() {
        Ok(Fork::Child) => {
            leave_session();
            member("foreign", census, muster)
        }
        Ok(Fork::Parent(_)) => rest(),
        Err(_) => exit_now(1),
    }
}

/// The processes between the leader and a foreign process die with the leader, before leash can see whose child the
/// last one was.
fn die_with_parent() {
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
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

/// A child that forks into the PID namespace of `into`, and leaves an orphan there, which the first process of that
/// namespace adopts.
fn joiner(into: i32, own_session: bool, census: &Census, muster: &Muster) -> io::Result<()> {
    if let Fork::Parent(_) = fork()? {
        return Ok(());
    }
    let joined = escapes::enter_namespace_of(into).and_then(|()| fork());
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

/// The main function of a process that is not the leader: it ignores all signals that can be ignored.
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
    // Every leader exits at SIGUSR1, for the tests in which a leader exits by itself.
    let usr1 = match name {
        "zoo-leader" => Answer::Leave,
        _ => Answer::Ignore,
    };
    answer(libc::SIGUSR1, usr1);
    if let Ok(name) = std::ffi::CString::new(name) {
        // The name helps people to read a list of survivors.
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
    // The kernel refuses this to a group leader, which has its own group already.
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
            // A terminal that is gone and a closed stdin count as the end of input.
            Err(_) => return Ok(()),
        };
        if write_all(&rustix::stdio::stdout(), &buffer[..got]).is_err() {
            census.say("stdout-closed");
        }
    }
}

/// Writes until one more byte would block, without changing the file flags, which the host shares.
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

fn bad(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text.to_owned())
}
