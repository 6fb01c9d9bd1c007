//! A server's process tree behind the gateway, and the two pipes to it.

use std::cell::{Cell, OnceCell};
use std::task::{Context, Poll, ready};
use std::{future::poll_fn, io, os::fd::OwnedFd, rc::Rc, sync::Arc};

use rustix::pipe::PipeFlags;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::{io::unix::AsyncFd, sync::Notify, task::AbortHandle, time::timeout};
use tokio_util::task::TaskTracker;

use super::{exit::UnansweredError, input::ServerInput, shared_trees, stderr::ServerStderr};
use crate::config::{ServerCommand, ServerTarget};
use crate::metrics::{Counters, add};
use crate::notified::{wait_for, wait_until};
use crate::state::gateway::{GATEWAY_LABEL, Gateway};
use crate::state::server::{RunningTree, Server};
use crate::state::stop::StopSignal;
use leash_model::client::GatewayClient;
use leash_model::receipt::{Reason, Receipt};
use leash_model::{containment::ContainmentWish, limits, start_failure::StartFailure};
use leash_tree::contain::slice::SharedBudgets;
use leash_tree::platform::linux::{self, AsyncPidfd};
use leash_tree::tree::{Spec, Tree};
use leash_tree::{blocking, tree::failure::failed};

/// A running tree with its pipes.
pub(super) struct StartedTree {
    pub(super) tree: WatchedTree,
    pub(super) input: Sender,
    pub(super) output: Receiver,
    pub(super) stderr: ServerStderr,
}

/// A tree whose reports wake a task.
pub(super) struct WatchedTree {
    tree: Tree,
    /// A copy of the tree's own descriptor.
    reports: AsyncFd<OwnedFd>,
}

impl WatchedTree {
    /// Ready with the tree's receipt once it is over; `None` inside if the receipt is not known.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<Option<Receipt>> {
        loop {
            let Ok(mut ready) = ready!(self.reports.poll_read_ready(cx)) else { return Poll::Ready(None) };
            match self.tree.poll_over() {
                Some(over) => return Poll::Ready(over.ok()),
                None => ready.clear_ready(),
            }
        }
    }

    /// The id of its run.
    pub(super) fn run(&self) -> &str {
        self.tree.run()
    }

    /// Reaps a supervisor that the tree has for itself, on the blocking pool. It has reported and exits within about a
    /// millisecond, so the caller does not wait for it.
    pub(super) fn reap(self, tasks: &TaskTracker) {
        let tree = self.tree;
        let token = tasks.token();
        drop(blocking::spawn(move || {
            tree.reap();
            drop(token);
        }));
    }
}

/// Returns a tree of the server for a session: the one that waits for its first client, or a new one.
pub(super) async fn start(
    gateway: &Rc<Gateway>,
    server: &Rc<Server>,
    session: &str,
) -> Result<StartedTree, StartFailure> {
    match shared_trees(server).warm.take() {
        Some(started) => Ok(started),
        None => start_new(gateway, server, session).await,
    }
}

/// Starts a server's program for a session. Trees of a job belong to the job's session, whichever client uses them.
pub(super) async fn start_new(
    gateway: &Rc<Gateway>,
    server: &Rc<Server>,
    session: &str,
) -> Result<StartedTree, StartFailure> {
    let settings = server.settings();
    let ServerTarget::Command(command) = &settings.target else { return Err(StartFailure::Ended) };
    let session_budget = server.job.as_ref().map(|job| job.budget).unwrap_or_default();
    let mut spec = spec(command)
        .budgets(SharedBudgets { session: session_budget, all: gateway.settings().budget })
        .grace(settings.policy.grace)
        .pressure_stop(settings.policy.pressure_stop)
        .named(settings.name.clone())
        .log(true)
        .session(server.job.as_ref().map_or(session, |job| &job.id))
        .label(GATEWAY_LABEL, gateway.book.run());
    for (key, value) in server.job.iter().flat_map(|job| &job.labels) {
        spec = spec.label(key, value);
    }
    let (ours, theirs) = stderr_pipe().map_err(|error| failed("cannot make a pipe for its stderr", error))?;
    let stderr = ServerStderr::read(gateway, &server.name, ours);
    let places = gateway.places.clone();
    // The start waits some milliseconds for the keeper. On this thread, the gateway would answer no request meanwhile.
    let token = gateway.tasks.token();
    let supervisor = Arc::clone(&gateway.supervisor);
    let started = blocking::spawn(move || (supervisor.start(spec, &places, theirs), token).0).await;
    watch_supervisor(gateway);
    let mut tree = started.map_err(|_| StartFailure::Ended)??;
    match ends(&mut tree) {
        Ok((input, output, reports)) => {
            server.tree_began(RunningTree {
                run: tree.run().into(),
                pid: tree.leader(),
                containment: tree.containment(),
            });
            gateway.stoppable.add(server);
            Ok(StartedTree { input, output, stderr, tree: WatchedTree { tree, reports } })
        }
        Err(error) => {
            // The tree runs but the gateway cannot watch it, so it ends the tree. The caller waits for that end.
            tree.ask_to_end();
            let token = gateway.tasks.token();
            // If no thread is available, the tree is dropped without waiting, and ends all the same.
            if let Some(ended) = blocking::attempt(move || (tree.wait(), token).0)
                && let Ok(Ok(receipt)) = ended.await
            {
                server.ended(&receipt);
            }
            Err(failed("cannot watch the server", error))
        }
    }
}

/// Reaps a new supervisor when it has exited.
fn watch_supervisor(gateway: &Gateway) {
    let watch = gateway.supervisor.take_watch().and_then(|pidfd| AsyncPidfd::new(pidfd).ok());
    if let Some(watch) = watch {
        let supervisor = Arc::clone(&gateway.supervisor);
        // Not among the tasks that the gateway waits for: when it stops, nothing is left to reap.
        tokio::task::spawn_local(async move {
            let _ = watch.ended().await;
            supervisor.reap();
        });
    }
}

/// Our ends of a tree's two pipes, and a copy of the descriptor of its reports. The server does not share our open file
/// descriptions of the pipes, so O_NONBLOCK affects only our ends.
fn ends(tree: &mut Tree) -> io::Result<(Sender, Receiver, AsyncFd<OwnedFd>)> {
    let (stdin, stdout) = tree.take_stdin().zip(tree.take_stdout()).ok_or(io::ErrorKind::BrokenPipe)?;
    let input = Sender::from_owned_fd(OwnedFd::from(stdin))?;
    let output = Receiver::from_owned_fd(OwnedFd::from(stdout))?;
    let copy = rustix::io::fcntl_dupfd_cloexec(&*tree, 3)?;
    Ok((input, output, linux::readable(copy)?))
}

/// A pipe for a server's stderr: our end and the server's.
fn stderr_pipe() -> io::Result<(Receiver, OwnedFd)> {
    let (ours, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    Ok((Receiver::from_owned_fd(ours)?, theirs))
}

fn spec(command: &ServerCommand) -> Spec {
    let mut spec = Spec::new(std::iter::once(&command.command).chain(&command.args));
    for (name, value) in &command.env {
        spec = spec.env(name, Some(value.into()));
    }
    for name in &command.spare {
        spec = spec.spare(name);
    }
    if let Some(cwd) = &command.cwd {
        spec = spec.cwd(cwd);
    }
    let wish = ContainmentWish { exactly: command.contain, at_least: command.require };
    spec.contain(wish).caps(command.caps)
}

/// A server's process as the rest of the gateway sees it: its input, and its end.
pub(super) struct ServerProcess {
    pub(super) input: Rc<ServerInput>,
    stderr: ServerStderr,
    /// The id of its run, once it is watched.
    run: OnceCell<Rc<str>>,
    /// The reason that its end was requested for; set once.
    end_reason: OnceCell<Reason>,
    /// The client that it is for, which the receipt names.
    client: OnceCell<GatewayClient>,
    /// Its receipt, once it is over; `None` inside if the receipt is not known.
    over: OnceCell<Option<Receipt>>,
    changed: Notify,
    /// True once its output was read to the end.
    output_is_over: Cell<bool>,
    /// True while leash does not read its output, because a client does not read its stream.
    pub(super) held_up: Cell<bool>,
    /// The task that reads its output.
    pub(super) reader: OnceCell<AbortHandle>,
    pub(super) tasks: TaskTracker,
    /// Says when no grace is left.
    stop: StopSignal,
}

impl ServerProcess {
    pub(super) fn new((input, stderr): (Sender, ServerStderr), tasks: TaskTracker, stop: StopSignal) -> ServerProcess {
        ServerProcess {
            stderr,
            input: ServerInput::new(input, tasks.clone()),
            tasks,
            stop,
            run: OnceCell::new(),
            end_reason: OnceCell::new(),
            client: OnceCell::new(),
            over: OnceCell::new(),
            changed: Notify::new(),
            output_is_over: Cell::new(false),
            held_up: Cell::new(false),
            reader: OnceCell::new(),
        }
    }

    /// Sets the client that its receipt names.
    pub(super) fn is_for(&self, client: GatewayClient) {
        let _ = self.client.set(client);
    }

    /// The id of its run, once it is watched.
    pub(super) fn run(&self) -> Option<Rc<str>> {
        self.run.get().cloned()
    }

    /// Begins its end.
    pub(super) fn ask_to_end(&self, reason: &Reason) {
        if self.end_reason.set(reason.clone()).is_ok() {
            self.changed.notify_waiters();
        }
    }

    /// Returns its receipt when it is over.
    pub(super) async fn over(&self) -> Option<Receipt> {
        wait_for(&self.changed, || self.over.get().cloned()).await
    }

    /// Returns when the tree is over.
    pub(super) async fn gone(&self) {
        wait_until(&self.changed, || self.over.get().is_some()).await;
    }

    /// Returns the error for requests that the server `name` did not answer because it exited. Waits a moment for its
    /// exit code.
    pub(super) async fn exit_error(&self, name: &str) -> UnansweredError {
        let _ = timeout(limits::EXIT_FACTS, self.gone()).await;
        self.exited(name)
    }

    /// The same with what is known now.
    pub(super) fn exited(&self, name: &str) -> UnansweredError {
        let receipt = self.over.get().and_then(Option::as_ref);
        let exit = receipt.and_then(|receipt| receipt.trees().next()?.exit);
        UnansweredError::exited(name, exit, &self.stderr.last_lines())
    }

    /// Notes that its output has ended.
    pub(super) fn output_ended(&self) {
        self.output_is_over.set(true);
        self.changed.notify_waiters();
    }

    /// Watches a tree until it is over and all of its output was read. Calls `on_input_closed` when the server closes
    /// its input, because it then gets no more messages.
    pub(super) async fn watch_until_over(
        &self,
        mut tree: WatchedTree,
        (server, counters): (&Server, &Counters),
        on_input_closed: impl Fn(),
    ) -> Option<Receipt> {
        let _ = self.run.set(tree.run().into());
        add(&counters.trees, 1);
        add(&counters.trees_started, 1);
        let receipt = self.follow(&mut tree, on_input_closed).await;
        self.read_remaining_output().await;
        self.stderr.finish().await;
        counters.trees.set(counters.trees.get() - 1);
        server.tree_ended(tree.run(), receipt.as_ref());
        tree.reap(&self.tasks);
        receipt
    }

    /// Waits until the rest of its output is read. The pipe ends when its last process has exited.
    async fn read_remaining_output(&self) {
        while timeout(limits::LAST_OUTPUT, wait_until(&self.changed, || self.output_is_over.get())).await.is_err() {
            // The gateway cuts a client that does not read after a while. A client that reads gets everything.
            if self.held_up.get() {
                continue;
            }
            if let Some(reader) = self.reader.get() {
                reader.abort();
            }
            return;
        }
    }

    /// Notes that it is over.
    pub(super) fn is_over(&self, receipt: Option<Receipt>) {
        self.input.close();
        let _ = self.over.set(receipt);
        self.changed.notify_waiters();
    }

    async fn follow(&self, watched: &mut WatchedTree, on_input_closed: impl Fn()) -> Option<Receipt> {
        let (mut told, mut heard, mut hurried) = (false, true, false);
        loop {
            tokio::select! {
                reason = wait_for(&self.changed, || self.end_reason.get()), if !told => {
                    told = true;
                    // First the reason, then the input: closing the input also ends the server, for another reason.
                    watched.tree.end_for(reason, self.client.get());
                    self.input.close();
                }
                () = self.stop.clone().forced(), if told && !hurried => {
                    hurried = true;
                    watched.tree.hurry();
                }
                () = self.input.closed(), if heard && !told => {
                    heard = false;
                    on_input_closed();
                }
                receipt = poll_fn(|cx| watched.poll_over(cx)) => return receipt,
            }
        }
    }
}
