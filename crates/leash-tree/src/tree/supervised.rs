//! One tree of a supervisor: the keeper that it has started, the messages and orders between the two, and the owners.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, WaitOptions, WaitStatus, getpid};

use super::control::{KeeperReport, Order, Orders};
use super::driver::{END_SIGNAL, END_VALUE, FORCE_VALUE};
use super::launch::{self, KeeperLaunch};
use super::spec::Spec;
use super::stderr_copy::StderrPipe;
use super::supervisor::SupervisorProcess;
use crate::contain::unit::UserBus;
use crate::ledger::store::{LockedRun, Store};
use crate::owner::OwnerWatch;
use crate::places::Places;
use crate::platform::channel::{self, ChannelRead};
use crate::platform::identity;
use crate::platform::linux::{self, ReceivedSignal};
use crate::platform::poll::{self, PollSet};
use crate::platform::proc::Stat;
use crate::tree::sweep;
use leash_model::clock::{Moment, timeout_until};
use leash_model::containment::ContainmentWish;
use leash_model::event::Event;
use leash_model::receipt::{Reason, Receipt};
use leash_model::record::Record;
use leash_model::start_failure::StartFailure;
use leash_model::{duration, limits};

/// The standard descriptors that a server gets.
pub(super) struct ServerStdio<'a> {
    pub(super) stdin: BorrowedFd<'a>,
    pub(super) stdout: BorrowedFd<'a>,
    pub(super) stderr: BorrowedFd<'a>,
}

impl ServerStdio<'static> {
    /// Those of this process.
    pub(super) fn own() -> ServerStdio<'static> {
        ServerStdio { stdin: rustix::stdio::stdin(), stdout: rustix::stdio::stdout(), stderr: rustix::stdio::stderr() }
    }
}

/// The parts of a start that the caller has found.
pub(super) struct TreeStart<'a> {
    pub(super) spec: &'a Spec,
    pub(super) places: &'a Places,
    pub(super) stdio: ServerStdio<'a>,
    pub(super) owners: Vec<OwnerWatch>,
    /// True if the supervisor holds other trees, too.
    pub(super) is_shared: bool,
}

/// The pipe for a copy of the server's stderr, and the server's end of it. If there is none, the server has the host's own
/// stderr: a log must not stand in the way of a start.
fn stderr_pipe(
    spec: &Spec,
    host: BorrowedFd<'_>,
    tell: &mut dyn FnMut(Event),
) -> (Option<StderrPipe>, Option<OwnedFd>) {
    if !spec.log {
        return (None, None);
    }
    match StderrPipe::new(host) {
        Ok((pipe, writer)) => (Some(pipe), Some(writer)),
        Err(error) => {
            tell(Event::Warning(format!("leash keeps no log of the server's stderr: {error}")));
            (None, None)
        }
    }
}

/// A tree that a supervisor has started.
pub(super) struct SupervisedTree {
    keeper: i32,
    keeper_fd: OwnedFd,
    control: OwnedFd,
    /// Every process that could write to the control socket has closed it.
    control_closed: bool,
    watches: Vec<OwnerWatch>,
    pub(super) record: Record,
    pub(super) locked_run: LockedRun,
    pub(super) grace: Duration,
    phase: KeeperWait,
    /// The containment that the caller asked for. The server can change the record in the ledger, but not this field.
    pub(super) wish: ContainmentWish,
    /// True if the keeper said that the server ran.
    pub(super) started: bool,
    pub(super) last_message: Option<LastMessage>,
    /// The keeper is dead, so another process may get its number.
    keeper_dead: bool,
    /// The keeper exited by itself, with its work done. `false` for a killed keeper.
    pub(super) keeper_exited: bool,
    /// The reason for the end of the tree, as we told the keeper.
    pub(super) asked: Option<Reason>,
    /// The reason for the end of the tree, as the keeper told us.
    pub(super) ending: Option<Reason>,
    /// The time at which the keeper was first seen stopped while it ends the tree.
    stopped_since: Option<Moment>,
    /// PID namespaces that members entered, as the keeper told and as the record says.
    pub(super) entered: BTreeSet<u64>,
    /// The pipe of the server's stderr, if leash copies it: used when the keeper is gone.
    pub(super) stderr: Option<StderrPipe>,
}

/// The keeper's last message. It is not a proof: every process of the same user can write to the control socket.
#[derive(Debug)]
pub(super) enum LastMessage {
    /// The tree is over.
    Over(Box<Receipt>),
    /// The server never ran.
    Failed(StartFailure),
}

/// The thing that the supervisor waits for from its keeper.
#[derive(Debug)]
enum KeeperWait {
    /// The server's start.
    Start { give_up: Moment },
    /// Nothing: the server runs.
    Nothing,
    /// A message that shows that the keeper has read an order.
    Answer { give_up: Moment },
    /// The end of the tree.
    End { give_up: Moment },
    /// The keeper's exit, after its last message.
    Exit { give_up: Moment },
}

impl KeeperWait {
    fn give_up(&self) -> Option<Moment> {
        match self {
            KeeperWait::Nothing => None,
            KeeperWait::Start { give_up }
            | KeeperWait::Answer { give_up }
            | KeeperWait::End { give_up }
            | KeeperWait::Exit { give_up } => Some(*give_up),
        }
    }
}

/// The descriptors of a tree that a supervisor waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TreeSource {
    Control,
    Keeper,
    /// An owner, by its number in `watches`.
    Owner(usize),
}

impl SupervisedTree {
    /// Writes the record and starts the keeper.
    pub(super) fn start(
        process: &SupervisorProcess,
        start: TreeStart<'_>,
        tell: &mut dyn FnMut(Event),
    ) -> Result<SupervisedTree, StartFailure> {
        let TreeStart { spec, places, stdio, owners: watches, is_shared } = start;
        let command = launch::command_line(spec)?;
        let store = Store::open(&places.runtime_dir)?;
        if process.is_time_to_sweep() {
            let stores = Store::look_all(places).unwrap_or_else(|_| vec![store.clone()]);
            let swept = sweep::sweep(&stores, process.proc.as_ref());
            swept.receipts.into_iter().for_each(|receipt| tell(Event::Swept(Box::new(receipt))));
            swept.warnings.into_iter().for_each(|warning| tell(Event::Warning(warning)));
        }
        let mut record = launch::new_record(spec, &places.receipts, &watches, process.proc.as_ref());
        record.shared = is_shared;
        let locked_run = store.create(&record)?;
        let (stderr, writer) = stderr_pipe(spec, stdio.stderr, tell);
        let orders = Orders {
            record: record.clone(),
            wish: spec.contain,
            caps: spec.caps,
            budgets: spec.budgets,
            max_age_ms: spec.max_age.map(duration::as_ms),
            ignored_signals: spec.ignored(process.inherited).to_bits(),
            env: spec.environment(),
            runtime_dir: places.runtime_dir.clone(),
            bus: UserBus { address: places.bus_address.clone(), runtime_dir: places.xdg_runtime_dir.clone() },
            pid_one: getpid().as_raw_pid() == 1,
            copies_stderr: stderr.is_some(),
            most_files: process.most_files,
        };
        let launch = KeeperLaunch {
            orders,
            command,
            stdio,
            locked_run: &locked_run,
            watches: &watches,
            stderr: stderr.as_ref().zip(writer),
        };
        match launch.launch() {
            Ok(keeper) => Ok(SupervisedTree {
                keeper: keeper.pid,
                keeper_fd: keeper.pidfd,
                control: keeper.control,
                control_closed: false,
                watches,
                record,
                locked_run,
                grace: spec.pace(),
                phase: KeeperWait::Start { give_up: Moment::now() + limits::START },
                wish: spec.contain,
                started: false,
                last_message: None,
                keeper_dead: false,
                keeper_exited: false,
                asked: None,
                ending: None,
                stopped_since: None,
                entered: BTreeSet::new(),
                stderr,
            }),
            Err(error) => {
                locked_run.remove();
                Err(error)
            }
        }
    }

    /// The number of its keeper, as long as no other process can have it.
    pub(super) fn keeper(&self) -> i32 {
        self.keeper
    }

    /// Gives up the owners, for the code that ends the tree.
    pub(super) fn take_watches(&mut self) -> Vec<OwnerWatch> {
        std::mem::take(&mut self.watches)
    }

    /// Adds the descriptors to wait for.
    pub(super) fn watch<'a, S>(&'a self, set: &mut PollSet<'a, S>, source: impl Fn(TreeSource) -> S) {
        // A keeper that exits closes its socket some time before it is dead. Polling the socket until then would spin.
        if !self.control_closed {
            set.add(source(TreeSource::Control), self.control.as_fd(), PollFlags::IN);
        }
        set.add(source(TreeSource::Keeper), self.keeper_fd.as_fd(), PollFlags::IN);
        for (number, watch) in self.watches.iter().enumerate() {
            set.add(source(TreeSource::Owner(number)), watch.as_fd(), watch.events());
        }
    }

    /// The time at which to look again, if nothing happens.
    pub(super) fn next_look(&self, now: Moment) -> Option<Moment> {
        match self.phase {
            KeeperWait::End { give_up } => Some(give_up.min(now + limits::KEEPER_ANSWER)),
            _ => self.phase.give_up(),
        }
    }

    /// The kernel lets us poll no descriptor, so we can no longer watch the owners.
    pub(super) fn starve(&mut self) {
        if self.asked.is_none() {
            self.order(Reason::Starved);
        }
    }

    /// Handles the sources that are ready, and looks at the deadlines.
    /// Returns `Some` when the keeper is gone: the reason to give if there is no better one.
    pub(super) fn react(
        &mut self,
        process: &SupervisorProcess,
        ready: &[(TreeSource, PollFlags)],
        tell: &mut dyn FnMut(Event),
    ) -> Option<Reason> {
        let is_ready = |wanted: TreeSource| ready.iter().any(|(source, _)| *source == wanted);
        if is_ready(TreeSource::Control) || is_ready(TreeSource::Keeper) {
            self.handle_messages(tell);
        }
        if is_ready(TreeSource::Keeper) {
            self.reap();
        }
        if self.keeper_dead {
            // The keeper may have sent its last message between the read above and its death.
            self.handle_messages(tell);
            return Some(Reason::KeeperKilled);
        }
        // From the last to the first: a lost owner is removed from the list.
        for (source, answer) in ready.iter().rev() {
            if let TreeSource::Owner(number) = source
                && let Some(reason) = self.watches[*number].judge(*answer)
            {
                self.watches.remove(*number);
                self.order(reason);
            }
        }
        let now = Moment::now();
        let is_late = self.phase.give_up().is_some_and(|give_up| now >= give_up);
        (is_late || self.keeper_is_stopped(process, now)).then(|| self.give_up_keeper())
    }

    /// True if the keeper has been stopped for [`limits::KEEPER_ANSWER`] while it ends the tree. The ladder may take
    /// minutes: the supervisor waits for a keeper that runs, but not for a stopped one.
    fn keeper_is_stopped(&mut self, process: &SupervisorProcess, now: Moment) -> bool {
        if !matches!(self.phase, KeeperWait::End { .. }) {
            return false;
        }
        let stat = process.proc.and_then(|proc| proc.stat(self.keeper));
        self.stopped_since = stat.filter(Stat::is_stopped).and(self.stopped_since.or(Some(now)));
        self.stopped_since.is_some_and(|since| now.since(since) >= limits::KEEPER_ANSWER)
    }

    /// Handles every message that has arrived. No message may move a deadline that another message has set, because any
    /// process of the same user can forge messages.
    pub(super) fn handle_messages(&mut self, tell: &mut dyn FnMut(Event)) {
        loop {
            let message = match channel::receive(self.control.as_fd()) {
                ChannelRead::Message(message) => message,
                ChannelRead::Nothing => return,
                ChannelRead::Closed => {
                    self.control_closed = true;
                    return;
                }
            };
            match message {
                KeeperReport::Started { leader, containment, refused } if !self.started => {
                    self.started = true;
                    // The supervisor may have sent an order while the keeper started the server.
                    if matches!(self.phase, KeeperWait::Start { .. }) {
                        self.phase = match self.asked {
                            Some(_) => KeeperWait::Answer { give_up: Moment::now() + limits::KEEPER_ANSWER },
                            None => KeeperWait::Nothing,
                        };
                    }
                    tell(Event::Started { name: self.record.name.clone(), leader, containment, refused });
                }
                KeeperReport::Started { .. } => {}
                KeeperReport::Ending { why, rung, members } => {
                    if !matches!(self.phase, KeeperWait::End { .. } | KeeperWait::Exit { .. }) {
                        let longest = self.grace * 2 + limits::UNREAD + limits::GIVE_UP + limits::KEEPER_SLACK;
                        self.phase = KeeperWait::End { give_up: Moment::now() + longest };
                    }
                    self.ending.get_or_insert_with(|| why.clone());
                    tell(Event::Ending { why, rung, members });
                }
                // A forged message can only add namespaces, which makes the end `left` and never `gone`.
                KeeperReport::Entered(namespaces) => self.entered.extend(namespaces),
                KeeperReport::Warning(text) => tell(Event::Warning(text)),
                KeeperReport::Over(receipt) => self.last_message(LastMessage::Over(receipt)),
                KeeperReport::Failed(failure) => self.last_message(LastMessage::Failed(failure)),
            }
        }
    }

    /// Keeps the first last message. A keeper exits within a millisecond of sending it. If it does not exit, another
    /// process sent the message, or the keeper is stopped.
    fn last_message(&mut self, message: LastMessage) {
        if self.last_message.is_none() {
            self.last_message = Some(message);
            self.phase = KeeperWait::Exit { give_up: Moment::now() + limits::KEEPER_SLACK };
        }
    }

    /// Reaps the keeper if it is dead. Its orphans are then our children, and the code that ends them must reap them.
    /// The first process of a container also reaps other processes' orphans, as long as the keeper lives.
    pub(super) fn reap(&mut self) {
        if self.keeper_dead {
            return;
        }
        let keeper = rustix::process::waitpid(Pid::from_raw(self.keeper), WaitOptions::NOHANG);
        self.note_end(keeper);
        while getpid().as_raw_pid() == 1 && !self.keeper_dead {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid.as_raw_pid() == self.keeper => self.note_end(Ok(Some((pid, status)))),
                Ok(Some(_)) => {}
                _ => break,
            }
        }
        // A tracer of the keeper can keep its zombie from us, but not its orphans. The pidfd says that it is dead.
        self.keeper_dead |= identity::has_ended(self.keeper_fd.as_fd());
    }

    /// Records the answer of `wait` about the keeper.
    fn note_end(&mut self, waited: rustix::io::Result<Option<(Pid, WaitStatus)>>) {
        match waited {
            Ok(None) => {}
            Ok(Some((_, status))) => {
                self.keeper_dead = true;
                self.keeper_exited = status.exit_status() == Some(0);
            }
            Err(_) => self.keeper_dead = true,
        }
    }

    /// Handles a signal that this process got.
    pub(super) fn handle_signal(&mut self, received: ReceivedSignal) {
        match received.signal {
            END_SIGNAL if received.queued == Some(END_VALUE) => self.order(Reason::LEASH_END),
            END_SIGNAL if received.queued == Some(FORCE_VALUE) => {
                self.order(Reason::LEASH_END);
                self.hurry();
            }
            libc::SIGCHLD => self.reap(),
            // A SIGUSR1 without our value has no meaning here, and must not end leash either.
            END_SIGNAL => {}
            _ if self.ending() => channel::send(self.control.as_fd(), &Order::Nudge),
            signal => self.order(Reason::Signal { signal }),
        }
    }

    /// Ends the grace.
    pub(super) fn hurry(&mut self) {
        // The keeper may be gone or stuck. Then we end the tree ourselves, with this grace.
        self.grace = Duration::ZERO;
        channel::send(self.control.as_fd(), &Order::Hurry);
    }

    fn ending(&self) -> bool {
        matches!(self.phase, KeeperWait::Answer { .. } | KeeperWait::End { .. } | KeeperWait::Exit { .. })
    }

    /// Tells the keeper to end the tree, and expects an answer. The keeper has usually noticed the loss by itself.
    fn order(&mut self, why: Reason) {
        channel::send(self.control.as_fd(), &Order::End(why.clone()));
        self.asked.get_or_insert(why);
        if matches!(self.phase, KeeperWait::Nothing) {
            self.phase = KeeperWait::Answer { give_up: Moment::now() + limits::KEEPER_ANSWER };
        }
    }

    /// Kills a keeper that does not answer: it is stopped or stuck. It is our own child, so its children become ours.
    fn give_up_keeper(&mut self) -> Reason {
        let _ = linux::kill_own_child(self.keeper);
        // Wait for its death, but not for its zombie: a tracer may never hand the zombie over.
        let now = Moment::now();
        let patience = timeout_until(now + limits::KEEPER_SLACK, now);
        let _ = poll::poll(&mut [PollFd::new(&self.keeper_fd, PollFlags::IN)], Some(&patience));
        self.reap();
        Reason::KeeperStuck
    }
}

/// Writes the receipt of a start that failed, or of a server that never ran. A keeper that ended before the server ran may
/// have left one; `write` knows.
pub(super) fn note_failure(
    spec: &Spec,
    places: &Places,
    failure: &StartFailure,
    write: fn(&Path, &Receipt) -> io::Result<()>,
    tell: &mut dyn FnMut(Event),
) {
    if let Err(error) = write(&places.receipts, &launch::failed_receipt(spec, failure)) {
        tell(Event::Warning(format!("cannot write {}: {error}", places.receipts.display())));
    }
}
