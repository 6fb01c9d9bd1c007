//! The handle of a tree, for programs that use the library.
//!
//! The program starts a supervisor process of its own, which runs what `leash run` runs. So the tree ends if the program
//! ends it, drops it, exits, crashes or is killed. The program's own children and signals are left alone. A program that
//! starts many trees has one supervisor for all of them, a [`SharedSupervisor`](super::SharedSupervisor).

use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{ChildStdin, ChildStdout};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};
use rustix::pipe::PipeFlags;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::failure::{ended_early, failed};
use super::spec::Spec;
use super::supervisor_handle::{NO_SUPERVISOR, StartRequest, SupervisorHandle};
use crate::owner::StatedEnd;
use crate::places::Places;
use crate::platform::channel::{self, ChannelRead};
use crate::platform::command;
use crate::platform::{identity, poll};
use leash_model::client::GatewayClient;
use leash_model::containment::{Containment, Refusal};
use leash_model::event::Event;
use leash_model::owner::OwnerWish;
use leash_model::receipt::{Reason, Receipt};
use leash_model::start_failure::StartFailure;

/// The supervisor of a running tree was killed. The keeper ends the tree; its receipt is in the receipts file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the supervisor is gone")]
pub struct SupervisorLost;

/// A message from the supervisor to the handle.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Report {
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
    supervisor: Arc<SupervisorHandle>,
    control: OwnedFd,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    session: String,
    run: String,
    leader: Option<i32>,
    containment: Option<Containment>,
    refused: Vec<Refusal>,
}

impl Tree {
    /// Starts a server with its stdin and stdout piped to us, and returns when it runs. Its owners are this process,
    /// the pipe and this handle, whatever the specification says about parent and terminal.
    pub fn start(spec: Spec, places: &Places) -> Result<Tree, StartFailure> {
        Tree::start_in(|| SupervisorHandle::launch(places).map(Arc::new), spec, places, None, true)
    }

    /// The same as [`Tree::start`], with another stderr than ours.
    pub fn start_speaking_to(spec: Spec, places: &Places, stderr: OwnedFd) -> Result<Tree, StartFailure> {
        Tree::start_in(|| SupervisorHandle::launch(places).map(Arc::new), spec, places, Some(stderr), true)
    }

    /// Starts a server in the supervisor that `find` returns.
    pub(super) fn start_in(
        find: impl Fn() -> Result<Arc<SupervisorHandle>, StartFailure>,
        spec: Spec,
        places: &Places,
        stderr: Option<OwnedFd>,
        is_last: bool,
    ) -> Result<Tree, StartFailure> {
        let mut wishes = vec![OwnerWish::Parent, OwnerWish::Stdin];
        wishes.extend(spec.owners.iter().filter(|wish| matches!(wish, OwnerWish::Pid(_))));
        let mut spec = spec.owners(wishes);
        // First, so that a variable that the specification sets stays.
        spec.env.splice(0..0, command::withheld_names().into_iter().map(|name| (name, None)));
        let failed = |error: std::io::Error| failed(NO_SUPERVISOR, error);
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(std::io::Error::from);
        let (control, handle) = channel::pair().map_err(|errno| failed(errno.into()))?;
        channel::name_senders(control.as_fd()).map_err(|errno| failed(errno.into()))?;
        let (server_stdin, stdin) = pipe().map_err(failed)?;
        let (stdout, server_stdout) = pipe().map_err(failed)?;
        let stderr = stderr.map_or_else(|| rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3), Ok);
        let request = StartRequest {
            handle,
            orders: channel::write_memfd(&(&spec, places)).map_err(failed)?,
            stdin: server_stdin,
            stdout: server_stdout,
            stderr: stderr.map_err(|errno| failed(errno.into()))?,
        };
        let mut supervisor = find()?;
        if supervisor.start(&request, is_last).is_err() {
            // It had nothing to do and exited in this moment.
            supervisor = find()?;
            supervisor.start(&request, is_last).map_err(|error| match error.kind() {
                std::io::ErrorKind::BrokenPipe => ended_early(NO_SUPERVISOR),
                _ => failed(error),
            })?;
        }
        drop(request);
        let mut tree = Tree {
            supervisor,
            control,
            stdin: Some(stdin.into()),
            stdout: Some(stdout.into()),
            session: spec.session_id().to_owned(),
            run: spec.run_id().to_owned(),
            leader: None,
            containment: None,
            refused: Vec::new(),
        };
        tree.await_start()?;
        Ok(tree)
    }

    /// Waits for the report of the start.
    fn await_start(&mut self) -> Result<(), StartFailure> {
        loop {
            match self.report() {
                Some(Report::Event(Event::Started { leader, containment, refused, .. })) => {
                    (self.leader, self.containment, self.refused) = (leader, Some(containment), refused);
                    return Ok(());
                }
                Some(Report::Failed(failure)) => return Err(failure),
                // The supervisor reports the start before the end.
                Some(Report::Event(_) | Report::Over(_)) => {}
                None => return Err(ended_early(NO_SUPERVISOR)),
            }
        }
    }

    /// The next message of the supervisor. Every process of this user can write to the socket, but the kernel says who did.
    fn receive(&self) -> ChannelRead<Report> {
        channel::receive_from(self.control.as_fd(), self.supervisor.pid())
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
            match self.receive() {
                ChannelRead::Message(Report::Over(receipt)) => return Some(Ok(*receipt)),
                ChannelRead::Message(Report::Event(_) | Report::Failed(_)) => {}
                ChannelRead::Closed => return Some(Err(SupervisorLost)),
                ChannelRead::Nothing => return None,
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
        let supervisor = self.supervisor.pid();
        // If the leader has already exited or lives in a namespace, take the supervisor's only child.
        let children = proc.children(supervisor).found;
        let only = (children.len() == 1).then(|| children[0]);
        let keeper =
            above.into_iter().chain(only).find(|pid| proc.stat(*pid).is_some_and(|stat| stat.ppid == supervisor))?;
        identity::HeldProcess::open(proc, keeper)
    }

    /// Ends the grace: the keeper kills what is left. For a tree whose end was requested.
    pub fn hurry(&self) {
        self.supervisor.hurry(&self.run);
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

    /// Waits until a supervisor of its own has exited, so that it leaves no zombie. If the tree is over, the supervisor is
    /// about to exit; if not, this waits for the end.
    pub fn reap(self) {
        let Tree { supervisor, control, stdin, stdout, .. } = self;
        drop((control, stdin, stdout));
        if let Some(supervisor) = Arc::into_inner(supervisor) {
            supervisor.wait();
        }
    }

    /// The next report; `None` if the supervisor is gone. Meanwhile stdout is drained if the caller did not take it: a
    /// server blocked on a full pipe can't see the end of its stdin.
    fn report(&mut self) -> Option<Report> {
        loop {
            match self.receive() {
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
