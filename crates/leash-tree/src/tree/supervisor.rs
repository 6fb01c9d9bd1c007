//! The supervisor: the process that the host has as its child. It watches the owners, passes on signals, mirrors the
//! server's exit, and takes the tree over when the keeper is gone.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, WaitOptions, WaitStatus, getpid};

use super::contained_tree::{ContainedTree, Remaining};
use super::control::{KeeperReport, Order, Orders};
use super::driver::{END_SIGNAL, END_VALUE, FORCE_VALUE, TreeDriver, TreeDriverParts};
use super::failure::{ended_early, failed};
use super::first_look::{FirstLook, listened};
use super::launch::{self, KeeperLaunch, NO_KEEPER};
use super::machine::Event as MachineEvent;
use super::spec::Spec;
use super::stderr_copy::{StderrCopy, StderrPipe};
use crate::contain::leaf::Leaf;
use crate::contain::unit::UserBus;
use crate::ledger::receipts;
use crate::ledger::store::{LockedRun, Store};
use crate::owner::{self, OwnerWatch};
use crate::places::Places;
use crate::platform::channel::{self, ChannelRead};
use crate::platform::linux;
use crate::platform::poll::{self, PollSet};
use crate::platform::proc::{Proc, Stat};
use crate::platform::{identity, spawn};
use crate::tree::sweep;
use leash_model::clock::{Moment, timeout_until};
use leash_model::containment::{Containment, ContainmentWish};
use leash_model::event::Event;
use leash_model::receipt::{Reason, Receipt};
use leash_model::record::Record;
use leash_model::start_failure::StartFailure;
use leash_model::{duration, limits};

/// Runs a server to its end, as this process: blocks, becomes a subreaper, and takes the process's signals. For
/// programs that exist only for this (`leash run`). A program that does other work too uses [`super::Tree`].
pub fn supervise(
    spec: &Spec,
    places: &Places,
    first: FirstLook,
    tell: &mut dyn FnMut(Event),
) -> Result<Receipt, StartFailure> {
    supervise_for(spec, places, first, Vec::new(), tell)
}

/// The same as [`supervise`], with further owners that the caller has found.
pub(crate) fn supervise_for(
    spec: &Spec,
    places: &Places,
    first: FirstLook,
    owners: Vec<OwnerWatch>,
    tell: &mut dyn FnMut(Event),
) -> Result<Receipt, StartFailure> {
    let (over, write): (_, fn(&Path, &Receipt) -> io::Result<()>) =
        match Supervisor::start(spec, places, first, owners, tell) {
            // A keeper that ended before the server ran may have left a receipt.
            Ok(supervisor) => (supervisor.run(tell), receipts::append_once),
            Err(failure) => (Err(failure), receipts::append),
        };
    if let Err(failure) = &over
        && let Err(error) = write(&places.receipts, &launch::failed_receipt(spec, failure))
    {
        tell(Event::Warning(format!("cannot write {}: {error}", places.receipts.display())));
    }
    over
}

/// The pipe for a copy of the server's stderr, and the server's end of it. If there is none, the server has the host's own
/// stderr: a log must not stand in the way of a start.
fn stderr_pipe(spec: &Spec, tell: &mut dyn FnMut(Event)) -> (Option<StderrPipe>, Option<OwnedFd>) {
    if !spec.log {
        return (None, None);
    }
    match StderrPipe::new() {
        Ok((pipe, writer)) => (Some(pipe), Some(writer)),
        Err(error) => {
            tell(Event::Warning(format!("leash keeps no log of the server's stderr: {error}")));
            (None, None)
        }
    }
}

/// Copies what is left in the pipe of the server's stderr, for ends that run no driver.
fn copy_rest(pipe: Option<StderrPipe>, record: &Record) {
    if let Some(mut copy) = pipe.map(|pipe| StderrCopy::new(pipe, record)) {
        // The killed keeper may have taken a part of a line with it, so the log is not complete anyway.
        let _ = copy.read_rest();
        copy.send_rest();
    }
}

struct Supervisor {
    keeper: i32,
    keeper_fd: OwnedFd,
    control: OwnedFd,
    signals: OwnedFd,
    watches: Vec<OwnerWatch>,
    record: Record,
    locked_run: LockedRun,
    proc: Option<Proc>,
    /// We had children before we were leash (`helper & exec leash run ...`). We must not end them.
    has_other_children: bool,
    grace: Duration,
    phase: KeeperWait,
    /// The containment that the caller asked for. The server can change the record in the ledger, but not this field.
    wish: ContainmentWish,
    /// True if the keeper said that the server ran.
    started: bool,
    last_message: Option<LastMessage>,
    /// The keeper is dead, so another process may get its number.
    keeper_dead: bool,
    /// The keeper exited by itself, with its work done. `false` for a killed keeper.
    keeper_exited: bool,
    /// The reason for the end of the tree, as we told the keeper.
    asked: Option<Reason>,
    /// The reason for the end of the tree, as the keeper told us.
    ending: Option<Reason>,
    /// The time at which the keeper was first seen stopped while it ends the tree.
    stopped_since: Option<Moment>,
    /// PID namespaces that members entered, as the keeper told and as the record says.
    entered: BTreeSet<u64>,
    /// The pipe of the server's stderr, if leash copies it: used when the keeper is gone.
    stderr: Option<StderrPipe>,
}

/// The keeper's last message. It is not a proof: every process of the same user can write to the control socket.
#[derive(Debug)]
enum LastMessage {
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

/// The descriptors that a supervisor waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SupervisorSource {
    Signals,
    Control,
    Keeper,
    /// An owner, by its number in `watches`.
    Owner(usize),
}

impl Supervisor {
    fn start(
        spec: &Spec,
        places: &Places,
        first: FirstLook,
        owners: Vec<OwnerWatch>,
        tell: &mut dyn FnMut(Event),
    ) -> Result<Supervisor, StartFailure> {
        let (parent, inherited) = first.into_parts();
        let signals = linux::listen(&listened(inherited)).map_err(|errno| failed("cannot listen to signals", errno))?;
        linux::survive_file_size_limit();
        let proc = Proc::own().ok();
        let has_other_children = proc.is_some_and(|proc| !proc.children(getpid().as_raw_pid()).proves_none());
        // Without a subreaper leash can promise nothing above `group`. The keeper would notice too, but such a kernel
        // is also too old for pidfds.
        rustix::process::set_child_subreaper(Some(getpid()))
            .map_err(|errno| failed("cannot become a subreaper", errno))?;
        let mut watches = owner::find(&spec.owners, parent, proc.as_ref(), inherited)
            .map_err(|owner| StartFailure::Owner { owner })?;
        watches.extend(owners);
        let command = launch::command_line(spec)?;
        let store = Store::open(&places.runtime_dir)?;
        let stores = Store::look_all(places).unwrap_or_else(|_| vec![store.clone()]);
        let swept = sweep::sweep(&stores, proc.as_ref());
        swept.receipts.into_iter().for_each(|receipt| tell(Event::Swept(Box::new(receipt))));
        swept.warnings.into_iter().for_each(|warning| tell(Event::Warning(warning)));

        let record = launch::new_record(spec, &places.receipts, &watches, proc.as_ref());
        let locked_run = store.create(&record)?;
        let (stderr, writer) = stderr_pipe(spec, tell);
        let orders = Orders {
            record: record.clone(),
            wish: spec.contain,
            caps: spec.caps,
            budgets: spec.budgets,
            max_age_ms: spec.max_age.map(duration::as_ms),
            ignored_signals: spec.ignored(inherited).to_bits(),
            env: spec.environment(),
            runtime_dir: places.runtime_dir.clone(),
            bus: UserBus { address: places.bus_address.clone(), runtime_dir: places.xdg_runtime_dir.clone() },
            pid_one: getpid().as_raw_pid() == 1,
            copies_stderr: stderr.is_some(),
        };
        let launch = KeeperLaunch {
            program: &places.program,
            orders: &orders,
            command: &command,
            locked_run: &locked_run,
            watches: &watches,
            stderr: stderr.as_ref().zip(writer),
        };
        match launch.launch() {
            Ok(keeper) => Ok(Supervisor {
                keeper: keeper.pid,
                keeper_fd: keeper.pidfd,
                control: keeper.control,
                signals,
                watches,
                record,
                locked_run,
                proc,
                has_other_children,
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

    fn run(mut self, tell: &mut dyn FnMut(Event)) -> Result<Receipt, StartFailure> {
        // The host's pipes belong to the host and the server. If we held a copy of stdout, the host would not see its
        // end. We keep stderr to write messages to it.
        spawn::detach_stdin_and_stdout();
        // From here on the supervisor only waits, as long as the server lives. It does not need again the memory that
        // reading the command line took.
        linux::give_back_memory();
        let why = loop {
            if let Some(why) = self.step(tell) {
                break why;
            }
        };
        match self.last_message.take() {
            Some(message) if self.is_believable(&message) => self.conclude(message),
            _ => self.take_over(why, tell),
        }
    }

    /// True if the supervisor may believe the keeper's last message, now that the keeper is gone. For `gone` the
    /// supervisor needs its own proof: it has no child left, and the leaf has no member. It believes that something is
    /// left only from a keeper that exited by itself.
    fn is_believable(&self, message: &LastMessage) -> bool {
        // If we are the first process of a PID namespace, the kernel kills all other processes in it when we exit.
        let is_first = getpid().as_raw_pid() == 1;
        let claims_gone = match message {
            LastMessage::Over(receipt) => receipt.run == self.record.run && receipt.all_gone(),
            LastMessage::Failed(_) => true,
        };
        is_first || if claims_gone { self.proves_gone() } else { self.keeper_exited }
    }

    /// True if our own look proves that every process of the tree is gone.
    fn proves_gone(&self) -> bool {
        let written = self.locked_run.read().ok().flatten();
        let Ok(leaf) = self.find_leaf(written.as_ref()) else { return false };
        if self.has_other_children {
            // Our other children hide the processes that the keeper may have left to us. The keeper made the same proof
            // before it exited.
            return self.keeper_exited && !leaf.as_ref().is_some_and(Leaf::populated);
        }
        // Reap no child while another one lives: in `group` the number of the dead leader identifies the group.
        let children = self.proc.map(|proc| proc.children(getpid().as_raw_pid()).found).unwrap_or_default();
        if !children.into_iter().all(identity::number_has_ended) {
            return false;
        }
        let mut tree = ContainedTree::new(Containment::Reaper, self.proc, self.record.spare.clone(), false);
        tree.leaf = leaf;
        // A keeper that exited by itself has searched the namespaces that members entered. Another tree may have started a
        // process in them since.
        if !self.keeper_exited {
            tree.entered = self.entered.clone();
            tree.entered.extend(written.into_iter().flat_map(|record| record.entered));
        }
        tree.reap() != Remaining::Members && tree.unproved().is_empty()
    }

    fn conclude(self, message: LastMessage) -> Result<Receipt, StartFailure> {
        match message {
            LastMessage::Over(receipt) => Ok(*receipt),
            LastMessage::Failed(failure) => {
                self.locked_run.remove();
                Err(failure)
            }
        }
    }

    /// The tree's leaf. In `leaf` we know its path. A scope of systemd has the run's name. Another process must have
    /// put any other path into the record.
    fn find_leaf(&self, written: Option<&Record>) -> io::Result<Option<Leaf>> {
        if let Some(dir) = &self.record.leaf
            && let Some(leaf) = Leaf::find(dir)?
        {
            return Ok(Some(leaf));
        }
        match written.and_then(|record| record.leaf.as_deref()) {
            Some(dir) if dir.ends_with(format!("leash-{}.scope/tree", self.record.run)) => Leaf::find(dir),
            _ => Ok(None),
        }
    }

    /// Waits for one event and handles it.
    /// Returns `Some` when the keeper is gone: the reason to give if there is no better one.
    fn step(&mut self, tell: &mut dyn FnMut(Event)) -> Option<Reason> {
        let ready = self.wait().unwrap_or_else(|| {
            // We can no longer watch the owners. We still read what we can read without a wait.
            if self.asked.is_none() {
                self.order(Reason::Starved);
            }
            [SupervisorSource::Control, SupervisorSource::Signals, SupervisorSource::Keeper]
                .map(|source| (source, PollFlags::IN))
                .into()
        });
        let is_ready = |wanted: SupervisorSource| ready.iter().any(|(source, _)| *source == wanted);
        if is_ready(SupervisorSource::Control) || is_ready(SupervisorSource::Keeper) {
            self.handle_messages(tell);
        }
        if is_ready(SupervisorSource::Signals) {
            self.handle_signals();
        }
        if is_ready(SupervisorSource::Keeper) {
            self.reap();
        }
        if self.keeper_dead {
            // The keeper may have sent its last message between the read above and its death.
            self.handle_messages(tell);
            return Some(Reason::KeeperKilled);
        }
        // From the last to the first: a lost owner is removed from the list.
        for (source, answer) in ready.into_iter().rev() {
            if let SupervisorSource::Owner(number) = source
                && let Some(reason) = self.watches[number].judge(answer)
            {
                self.watches.remove(number);
                self.order(reason);
            }
        }
        let now = Moment::now();
        let is_late = self.phase.give_up().is_some_and(|give_up| now >= give_up);
        (is_late || self.keeper_is_stopped(now)).then(|| self.give_up_keeper())
    }

    /// True if the keeper has been stopped for [`limits::KEEPER_ANSWER`] while it ends the tree. The ladder may take
    /// minutes: the supervisor waits for a keeper that runs, but not for a stopped one.
    fn keeper_is_stopped(&mut self, now: Moment) -> bool {
        if !matches!(self.phase, KeeperWait::End { .. }) {
            return false;
        }
        let stat = self.proc.and_then(|proc| proc.stat(self.keeper));
        self.stopped_since = stat.filter(Stat::is_stopped).and(self.stopped_since.or(Some(now)));
        self.stopped_since.is_some_and(|since| now.since(since) >= limits::KEEPER_ANSWER)
    }

    /// Waits until a source is ready. `None` when the kernel lets us poll no descriptor.
    fn wait(&self) -> Option<Vec<(SupervisorSource, PollFlags)>> {
        let mut set = PollSet::default();
        set.add(SupervisorSource::Signals, self.signals.as_fd(), PollFlags::IN);
        set.add(SupervisorSource::Control, self.control.as_fd(), PollFlags::IN);
        set.add(SupervisorSource::Keeper, self.keeper_fd.as_fd(), PollFlags::IN);
        for (number, watch) in self.watches.iter().enumerate() {
            set.add(SupervisorSource::Owner(number), watch.as_fd(), watch.events());
        }
        let now = Moment::now();
        let next_look = match self.phase {
            KeeperWait::End { give_up } => Some(give_up.min(now + limits::KEEPER_ANSWER)),
            _ => self.phase.give_up(),
        };
        set.wait(next_look.map(|deadline| timeout_until(deadline, now)).as_ref())
    }

    /// Handles every message that has arrived. No message may move a deadline that another message has set, because any
    /// process of the same user can forge messages.
    fn handle_messages(&mut self, tell: &mut dyn FnMut(Event)) {
        loop {
            let message = match channel::receive(self.control.as_fd()) {
                ChannelRead::Message(message) => message,
                ChannelRead::Nothing | ChannelRead::Closed => return,
            };
            match message {
                KeeperReport::Started { leader, containment, refused } if !self.started => {
                    self.started = true;
                    linux::resist_memory_shortage();
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
    fn reap(&mut self) {
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

    fn handle_signals(&mut self) {
        while let Some(received) = linux::receive(self.signals.as_fd()) {
            match received.signal {
                END_SIGNAL if received.queued == Some(END_VALUE) => self.order(Reason::LEASH_END),
                END_SIGNAL if received.queued == Some(FORCE_VALUE) => {
                    // The keeper may be gone or stuck. Then we end the tree ourselves, with this grace.
                    self.grace = Duration::ZERO;
                    self.order(Reason::LEASH_END);
                    channel::send(self.control.as_fd(), &Order::Hurry);
                }
                libc::SIGCHLD => self.reap(),
                // A SIGUSR1 without our value has no meaning here, and must not end leash either.
                END_SIGNAL => {}
                _ if self.ending() => channel::send(self.control.as_fd(), &Order::Nudge),
                signal => self.order(Reason::Signal { signal }),
            }
        }
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

    /// Ends the tree that the keeper left. The kernel has made us the parent of all of it.
    fn take_over(mut self, why: Reason, tell: &mut dyn FnMut(Event)) -> Result<Receipt, StartFailure> {
        let started = self.started;
        let written = self.locked_run.read().ok().flatten();
        let leaf = self.find_leaf(written.as_ref());
        if let Some(record) = written {
            let over = record.over.clone();
            self.learn(record);
            if let Some(receipt) = over.filter(|over| over.run == self.record.run && self.proves_gone()) {
                // The keeper was killed after it had ended the tree. Only its last message is missing.
                if let Err(error) = receipts::append_once(&self.record.receipts, &receipt) {
                    tell(Event::Warning(format!("cannot write {}: {error}", self.record.receipts.display())));
                }
                copy_rest(self.stderr, &self.record);
                self.locked_run.remove();
                return Ok(receipt);
            }
        }
        if let Some(proc) = self.proc.filter(|_| self.has_other_children) {
            let receipt = self.take_over_among_other_children(why, &proc, tell);
            return if started { Ok(receipt) } else { Err(ended_early(NO_KEEPER)) };
        }
        // The kernel ended a PID namespace together with its keeper. Its first process is now our child, and we reap it
        // like any other.
        let pid_one = getpid().as_raw_pid() == 1;
        let mut tree = ContainedTree::new(self.reach(), self.proc, self.record.spare.clone(), pid_one);
        tree.leader = self.record.leader.map(|id| id.pid).filter(|pid| identity::is_own_child(*pid));
        tree.entered = self.entered.clone();
        let unproved = leaf.as_ref().err().map(|error| format!("its cgroup can't be read: {error}"));
        tree.leaf = leaf.ok().flatten();
        let record = self.record;
        let guarded = TreeDriverParts {
            tree,
            locked_run: self.locked_run,
            watches: self.watches,
            signals: self.signals,
            grace: self.grace,
            stderr: self.stderr.map(|pipe| StderrCopy::new(pipe, &record)),
            record,
        };
        let driver = TreeDriver::of_supervisor(guarded, unproved);
        let begin = match self.ending {
            // The keeper had begun the end and may have used up the grace.
            Some(why) => MachineEvent::Hurry(why),
            // The process that wanted to watch this tree can no longer see what it does.
            None if driver.record.patient => MachineEvent::Hurry(self.asked.unwrap_or(why)),
            // The keeper's fate is only the reason if there is no other.
            None => driver.end_event(self.asked.unwrap_or(why)),
        };
        let (receipt, warnings) = driver.run(Some(begin));
        warnings.into_iter().for_each(|warning| tell(Event::Warning(warning)));
        if started {
            return Ok(receipt);
        }
        Err(ended_early(NO_KEEPER))
    }

    /// Takes over the facts that only the keeper knew, for the receipt. The server can write to the record's file. So
    /// the spare list, the path of the leaf and the path of the receipts stay as we wrote them.
    fn learn(&mut self, written: Record) {
        self.record.containment = written.containment;
        self.record.refused = written.refused;
        self.record.leader = written.leader;
        self.record.members = written.members;
        self.entered.extend(&written.entered);
        self.record.entered = written.entered;
        self.record.memory_bytes = written.memory_bytes;
    }

    /// The containment by which to end the tree. It is `group` only if the caller asked for it or /proc is not ours.
    fn reach(&self) -> Containment {
        let claimed = self.record.containment.unwrap_or(Containment::Reaper);
        let is_group = self.wish.exactly == Some(Containment::Group) || self.proc.is_none();
        if claimed == Containment::Group && !is_group { Containment::Reaper } else { claimed }
    }

    /// Ends only the processes that are proved to belong to the tree: orphans of the keeper look the same as orphans of
    /// our other children.
    fn take_over_among_other_children(self, why: Reason, proc: &Proc, tell: &mut dyn FnMut(Event)) -> Receipt {
        let reason = self.ending.or(self.asked).unwrap_or(why);
        let (receipt, warning) = sweep::end_run(self.locked_run, self.record.clone(), proc, reason);
        copy_rest(self.stderr, &self.record);
        warning.into_iter().for_each(|warning| tell(Event::Warning(warning)));
        receipt
    }
}
