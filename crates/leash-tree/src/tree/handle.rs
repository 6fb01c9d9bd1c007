//! The handle of a tree, for programs that use the library.
//!
//! The program starts a supervisor process of its own, which runs exactly what `leash run` runs. So the tree ends if
//! the program ends it, drops it, exits, crashes or is killed. The program's own children and signals are left alone.

use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus};

use rustix::event::{PollFd, PollFlags};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::control::fds;
use super::driver::{END_SIGNAL, FORCE_VALUE};
use super::failure::{ended_early, failed};
use super::first_look::FirstLook;
use super::spec::Spec;
use super::supervisor;
use crate::owner::{OwnerWatch, StatedEnd};
use crate::places::Places;
use crate::platform::channel::{self, ChannelRead};
use crate::platform::command::{self, Launch};
use crate::platform::{identity, linux, poll};
use leash_model::client::GatewayClient;
use leash_model::clock::{Moment, timeout_until};
use leash_model::containment::{Containment, Refusal};
use leash_model::event::Event;
use leash_model::limits;
use leash_model::owner::{Owner, OwnerWish};
use leash_model::receipt::{Reason, Receipt};
use leash_model::start_failure::StartFailure;

/// `argv[0]` of a supervisor that a library user started.
pub(crate) const SUPERVISOR: &str = "mcp-supervisor";

/// The step that failed if there is no supervisor.
const NO_SUPERVISOR: &str = "cannot start a supervisor";

/// The supervisor of a running tree was killed. The keeper ends the tree; its receipt is in the receipts file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the supervisor is gone")]
pub struct SupervisorLost;

/// A message from the supervisor to the handle.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Report {
    Event(Event),
    Failed(StartFailure),
    Over(Box<Receipt>),
}

/// A running server and everything it starts. Dropping it ends the tree too, but then the program gets no receipt.
///
/// ```no_run
/// use leash_tree::places::Places;
/// use leash_tree::tree::{Spec, Tree};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// if leash_tree::tree::keeper::enter(&[]) {
///     return Ok(()); // this process is a keeper
/// }
/// let tree = Tree::start(Spec::new(["npx", "-y", "@modelcontextprotocol/server-everything"]), &Places::below("/run/my-host"))?;
/// // ... speak MCP through tree.take_stdin() and tree.take_stdout() ...
/// let receipt = tree.end()?;
/// assert!(receipt.all_gone());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Tree {
    supervisor: Option<Child>,
    control: OwnedFd,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    session: String,
    run: String,
    leader: Option<i32>,
    containment: Option<Containment>,
    refused: Vec<Refusal>,
    /// The receipt that was reported. It counts only if the supervisor has exited by itself: any process of the same
    /// user can write to the socket, but a supervisor exits only after its own proof.
    claimed: Option<Box<Receipt>>,
}

impl Tree {
    /// Starts a server with its stdin and stdout piped to us, and returns when it runs. Its owners are this process,
    /// the pipe and this handle, whatever the specification says about parent and terminal.
    pub fn start(spec: Spec, places: &Places) -> Result<Tree, StartFailure> {
        Tree::launch(spec, places, None)
    }

    /// The same as [`Tree::start`], with another stderr than ours.
    pub fn start_speaking_to(spec: Spec, places: &Places, stderr: OwnedFd) -> Result<Tree, StartFailure> {
        Tree::launch(spec, places, Some(stderr))
    }

    fn launch(spec: Spec, places: &Places, stderr: Option<OwnedFd>) -> Result<Tree, StartFailure> {
        let mut wishes = vec![OwnerWish::Parent, OwnerWish::Stdin];
        wishes.extend(spec.owners.iter().filter(|wish| matches!(wish, OwnerWish::Pid(_))));
        let spec = spec.owners(wishes);
        let (ours, theirs) = channel::pair().map_err(|errno| failed(NO_SUPERVISOR, errno))?;
        let orders = channel::write_memfd(&(&spec, places)).map_err(|error| failed(NO_SUPERVISOR, error))?;
        let mut given = vec![(theirs, fds::CONTROL), (orders, fds::ORDERS)];
        given.extend(stderr.map(|stderr| (stderr, 2)));
        let mut child = command::launch(Launch {
            program: &places.program,
            role: SUPERVISOR,
            arguments: &[],
            fds: given,
            piped: true,
        })
        .map_err(|error| failed(NO_SUPERVISOR, error))?;
        let mut tree = Tree {
            control: ours,
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            supervisor: Some(child),
            session: spec.session_id().to_owned(),
            run: spec.run_id().to_owned(),
            leader: None,
            containment: None,
            refused: Vec::new(),
            claimed: None,
        };
        tree.await_start()?;
        Ok(tree)
    }

    /// Waits for the report of the start. A server that runs can write to the socket before the supervisor has reported its
    /// start, so a failed start is believed only when the supervisor is gone.
    fn await_start(&mut self) -> Result<(), StartFailure> {
        let mut claimed = None;
        loop {
            match self.report() {
                Some(Report::Event(Event::Started { leader, containment, refused, .. })) => {
                    (self.leader, self.containment, self.refused) = (leader, Some(containment), refused);
                    return Ok(());
                }
                Some(Report::Failed(failure)) if self.wait_for_exit().is_some() => return Err(failure),
                Some(Report::Failed(failure)) => claimed = Some(failure),
                // The supervisor reports the start before the end, so this is not its word.
                Some(Report::Event(_) | Report::Over(_)) => {}
                None => return Err(claimed.unwrap_or_else(|| ended_early(NO_SUPERVISOR))),
            }
        }
    }

    /// The server's stdin. Dropping it is how MCP asks a server to exit, and begins the end of the tree.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// The server's stdout. The caller must go on reading it, also while the tree ends.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.stdout.take()
    }

    /// The session this tree belongs to.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// The id of this run.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// The pid of the server's first process.
    pub fn leader(&self) -> Option<i32> {
        self.leader
    }

    /// The containment of the tree.
    pub fn containment(&self) -> Option<Containment> {
        self.containment
    }

    /// The stronger containments that were refused, with reasons.
    pub fn refused(&self) -> &[Refusal] {
        &self.refused
    }

    /// Begins the end with the caller's reason, which the receipt will name.
    pub fn end_because(&mut self, reason: &Reason) {
        self.end_for(reason, None);
    }

    /// The same for the tree of a client, which the receipt will name, too.
    pub fn end_for(&mut self, reason: &Reason, client: Option<&GatewayClient>) {
        channel::send(self.control.as_fd(), &StatedEnd { reason: reason.clone(), client: client.cloned() });
        self.ask_to_end();
    }

    /// The receipt, if the tree is over; `None` while it is not. For programs that wait for many events: the handle's
    /// descriptor becomes readable when a new call is worthwhile.
    pub fn poll_over(&mut self) -> Option<Result<Receipt, SupervisorLost>> {
        loop {
            match channel::receive(self.control.as_fd()) {
                ChannelRead::Message(Report::Over(receipt)) => self.claimed = Some(receipt),
                // The server runs, so the supervisor reports no failed start. Only another process would.
                ChannelRead::Message(Report::Event(_) | Report::Failed(_)) => {}
                ChannelRead::Closed => return Some(self.conclude()),
                // The supervisor closes the socket when it exits.
                ChannelRead::Nothing => return None,
            }
        }
    }

    /// The result of the tree, after the supervisor's end of the socket was closed.
    fn conclude(&mut self) -> Result<Receipt, SupervisorLost> {
        let receipt = self.claimed.take().ok_or(SupervisorLost)?;
        // An exiting process closes its descriptors a moment before its parent can wait for it.
        let status = self.wait_for_exit().filter(|status| status.code().is_some());
        status.map(|_| *receipt).ok_or(SupervisorLost)
    }

    /// The exit of a supervisor that is about to exit; `None` if it is not.
    fn wait_for_exit(&mut self) -> Option<ExitStatus> {
        let child = self.supervisor.as_mut()?;
        let give_up = Moment::now() + limits::KEEPER_ANSWER;
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Moment::now() < give_up => {
                    let now = Moment::now();
                    let _ = poll::poll(&mut [], Some(&timeout_until(now + limits::KILL_ROUND, now)));
                }
                _ => return None,
            }
        }
    }

    /// Begins the end without waiting for it.
    pub fn ask_to_end(&mut self) {
        // Half closed: the supervisor notices it, and can still report to us.
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Write);
        self.stdin = None;
    }

    /// The keeper of the tree: all living processes that the server started are below it.
    pub fn keeper(&self, proc: &crate::platform::proc::Proc) -> Option<identity::HeldProcess> {
        let above = self.leader.and_then(|leader| proc.stat(leader)).map(|stat| stat.ppid);
        let supervisor = self.supervisor.as_ref().and_then(|child| i32::try_from(child.id()).ok())?;
        // If the leader has already exited or lives in a namespace, take the supervisor's only child.
        let keeper = above
            .into_iter()
            .chain(proc.children(supervisor).found)
            .find(|pid| proc.stat(*pid).is_some_and(|stat| stat.ppid == supervisor))?;
        identity::HeldProcess::open(proc, keeper)
    }

    /// Ends the grace: the keeper kills what is left. For a tree whose end was requested.
    pub fn hurry(&self) {
        let pid = self.supervisor.as_ref().and_then(|child| i32::try_from(child.id()).ok());
        // We have not waited for it, so no other process has its number.
        if let Some(supervisor) = pid.and_then(|pid| identity::pidfd(pid).ok()) {
            let _ = linux::queue(supervisor.as_fd(), END_SIGNAL, FORCE_VALUE);
        }
    }

    /// Ends the tree. Returns when every process is gone, or when it is clear which ones are left.
    pub fn end(mut self) -> Result<Receipt, SupervisorLost> {
        self.ask_to_end();
        self.wait()
    }

    /// Waits for the tree to end by itself.
    pub fn wait(mut self) -> Result<Receipt, SupervisorLost> {
        loop {
            if let Some(over) = self.poll_over() {
                return over;
            }
            self.wait_for_news();
        }
    }

    /// Waits until the supervisor has exited, so that it leaves no zombie. If the tree is over, the supervisor is about
    /// to exit; if not, this waits for the end.
    pub fn reap(mut self) {
        if let Some(mut child) = self.supervisor.take() {
            let _ = child.wait();
        }
    }

    /// The next report; `None` if the supervisor is gone. Meanwhile stdout is drained if the caller did not take it: a
    /// server blocked on a full pipe can't see the end of its stdin.
    fn report(&mut self) -> Option<Report> {
        loop {
            match channel::receive(self.control.as_fd()) {
                ChannelRead::Message(report) => return Some(report),
                ChannelRead::Closed => return None,
                ChannelRead::Nothing => {}
            }
            self.wait_for_news();
        }
    }

    fn wait_for_news(&mut self) {
        let draining = self.stdin.is_none();
        if wait_for(self.control.as_fd(), self.stdout.as_ref().filter(|_| draining)) {
            self.drain();
        }
    }

    fn drain(&mut self) {
        let mut scrap = [0; 4096];
        let read = self.stdout.as_mut().map(|stdout| stdout.read(&mut scrap));
        if !matches!(read, Some(Ok(1..))) {
            self.stdout = None;
        }
    }
}

impl AsFd for Tree {
    /// The descriptor that becomes readable when [`Tree::poll_over`] may have a result.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

impl Drop for Tree {
    /// The last resort: closing the handle makes the supervisor end the tree in the background. A thread reaps the
    /// supervisor, because a child that its parent does not wait for stays a zombie.
    fn drop(&mut self) {
        // Closed now and not after this function: the thread below waits for the supervisor, which must notice the
        // close.
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Both);
        self.stdin = None;
        self.stdout = None;
        if let Some(mut child) = self.supervisor.take() {
            if matches!(child.try_wait(), Ok(Some(_))) {
                return;
            }
            let reaper = std::thread::Builder::new().name("leash-reaper".to_owned());
            let _ = reaper.spawn(move || child.wait());
        }
    }
}

/// Waits for many trees whose end has begun. Returns their results, in their order. It drains the output of all trees
/// that the caller did not take: waiting for one tree after the other would leave a server blocked on a full pipe.
pub(crate) fn wait_all(trees: Vec<Tree>) -> Vec<Result<Receipt, SupervisorLost>> {
    let mut trees: Vec<Option<Tree>> = trees.into_iter().map(Some).collect();
    let mut ends: Vec<Option<Result<Receipt, SupervisorLost>>> = trees.iter().map(|_| None).collect();
    loop {
        for (slot, end) in trees.iter_mut().zip(&mut ends) {
            if let Some(over) = slot.as_mut().and_then(Tree::poll_over) {
                *end = Some(over);
                slot.take().into_iter().for_each(Tree::reap);
            }
        }
        let mut left: Vec<&mut Tree> = trees.iter_mut().flatten().collect();
        if left.is_empty() {
            return ends.into_iter().map(|end| end.unwrap_or(Err(SupervisorLost))).collect();
        }
        let talkers: Vec<bool> = {
            let controls = left.iter().map(|tree| PollFd::from_borrowed_fd(tree.control.as_fd(), PollFlags::IN));
            // The second half has one descriptor per tree too, so that the positions agree. A tree without stdout polls
            // for no event there.
            let outputs = left.iter().map(|tree| match &tree.stdout {
                Some(stdout) => PollFd::new(stdout, PollFlags::IN),
                None => PollFd::from_borrowed_fd(tree.control.as_fd(), PollFlags::empty()),
            });
            let mut fds: Vec<PollFd<'_>> = controls.chain(outputs).collect();
            let _ = poll::poll(&mut fds, None);
            fds[left.len()..].iter().map(|fd| !fd.revents().is_empty()).collect()
        };
        for (tree, _) in left.iter_mut().zip(talkers).filter(|(tree, talks)| *talks && tree.stdout.is_some()) {
            tree.drain();
        }
    }
}

/// Waits for a report or for output. Returns true if there is output.
fn wait_for(control: BorrowedFd<'_>, stdout: Option<&ChildStdout>) -> bool {
    let mut fds = vec![PollFd::from_borrowed_fd(control, PollFlags::IN)];
    fds.extend(stdout.map(|stdout| PollFd::new(stdout, PollFlags::IN)));
    let _ = poll::poll(&mut fds, None);
    fds.get(1).is_some_and(|fd| !fd.revents().is_empty())
}

/// Runs as the supervisor of a library user's tree.
pub(crate) fn supervise() {
    let first = FirstLook::take();
    let (Ok(control), Ok(orders)) = (linux::inherited_fd(fds::CONTROL), linux::inherited_fd(fds::ORDERS)) else {
        return;
    };
    let Some((spec, places)) = channel::read_memfd::<(Spec, Places)>(orders) else { return };
    let Ok(watched) = rustix::io::fcntl_dupfd_cloexec(&control, 3) else { return };
    let owners = vec![OwnerWatch::new(Owner::Handle, watched)];
    let tell = |report: &Report| channel::send(control.as_fd(), report);
    let over = supervisor::supervise_for(&spec, &places, first, owners, &mut |event| tell(&Report::Event(event)));
    tell(&match over {
        Ok(receipt) => Report::Over(Box::new(receipt)),
        Err(failure) => Report::Failed(failure),
    });
}
