//! The driver of the ladder: waits for one event, lets the machine decide, and does what it decided.
//!
//! The keeper runs this loop as long as the tree lives. A supervisor runs the same loop once its keeper is gone. The
//! members are then its own adopted children, and everything below holds unchanged.

use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::event::PollFlags;

use super::budget::{BudgetUse, BudgetVerdict, BudgetWatch};
use super::contained_tree::{ContainedTree, Remaining};
use super::control::{KeeperReport, Order};
use super::kill;
use super::machine::{Effect, Event, State};
use super::stderr_copy::StderrCopy;
use crate::contain::slice::BudgetSlice;
use crate::ledger::store::LockedRun;
use crate::ledger::{logs, receipts};
use crate::owner::{self, OwnerWatch};
use crate::platform::channel::{self, ChannelRead};
use crate::platform::poll::PollSet;
use crate::platform::{linux, spawn};
use leash_model::clock::{Moment, timeout_until};
use leash_model::event::Rung;
use leash_model::identity::Identity;
use leash_model::owner::Owner;
use leash_model::receipt::{EndedBy, Exit, Fate, How, LeftOver, Reason, Receipt, TreeEnd};
use leash_model::record::{Phase, Record};
use leash_model::{duration, limits};

/// The signal by which `leash end` tells a supervisor or keeper to end the tree. It comes with a value, so that leash
/// does not take another SIGUSR1 for it.
pub const END_SIGNAL: i32 = libc::SIGUSR1;
/// See [`END_SIGNAL`]. The digits are "leash" on a telephone keypad.
pub const END_VALUE: i32 = 53274;
/// The value for `leash end --force`: no grace.
pub const FORCE_VALUE: i32 = 53275;
/// The value with which `leash watch --pressure` says that memory is short. The keeper decides whether the tree ends.
pub const PRESSURE_VALUE: i32 = 53276;

/// The connection to the supervisor.
#[derive(Debug)]
pub(crate) struct SupervisorLink {
    pub(crate) control: OwnedFd,
    pub(crate) pidfd: OwnedFd,
}

/// The processes that are left when the end is over; none if the tree is gone.
type Over = Vec<LeftOver>;

/// A tree, and everything that decides when it ends.
#[derive(Debug)]
pub(crate) struct TreeDriver {
    pub(crate) tree: ContainedTree,
    pub(crate) record: Record,
    locked_run: LockedRun,
    watches: Vec<OwnerWatch>,
    signals: Rc<OwnedFd>,
    /// The supervisor, as long as it lives. `None` in a supervisor that took over.
    supervisor: Option<SupervisorLink>,
    expires: Option<Moment>,
    ended_by: EndedBy,
    grace: Duration,
    state: State,
    snapshots: Snapshots,
    /// The time at which the end began.
    ending_since: Option<Moment>,
    /// Stdin after its other end was closed. The server can still read the bytes in it.
    ended_input: Option<OwnerWatch>,
    /// An owner other than the writer of stdin is gone, so no client waits for a response.
    other_owner_lost: bool,
    /// The machine has been told that the leader exited.
    leader_told: bool,
    peaks: TreePeaks,
    budget: BudgetWatch,
    /// The copy of the server's stderr, if leash keeps its log.
    stderr: Option<StderrCopy>,
    /// The reason why an empty tree would prove nothing.
    unproved: Option<String>,
    /// Warnings for the caller, used if there is no peer.
    warnings: Vec<String>,
}

/// The parts of a driver that both the keeper and a supervisor bring.
pub(crate) struct TreeDriverParts {
    pub(crate) tree: ContainedTree,
    pub(crate) record: Record,
    pub(crate) locked_run: LockedRun,
    pub(crate) watches: Vec<OwnerWatch>,
    pub(crate) signals: Rc<OwnedFd>,
    pub(crate) grace: Duration,
    pub(crate) stderr: Option<StderrCopy>,
}

/// The times at which the tree is looked at for the ledger.
#[derive(Debug)]
struct Snapshots {
    began: Moment,
    taken: usize,
    due: Moment,
}

impl Snapshots {
    fn new(began: Moment) -> Snapshots {
        Snapshots { began, taken: 0, due: began + limits::FIRST_SNAPSHOTS[0] }
    }

    fn next(&mut self, now: Moment) {
        self.taken += 1;
        self.due = limits::FIRST_SNAPSHOTS.get(self.taken).map_or(now + limits::SNAPSHOT, |after| self.began + *after);
    }
}

/// The most members and memory ever seen in the tree, for the receipt.
#[derive(Clone, Copy, Debug, Default)]
struct TreePeaks {
    members: usize,
    memory_bytes: u64,
}

/// The descriptors that the loop waits for. An order carries a better reason than a lost owner, so orders come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DriverSource {
    Signals,
    Control,
    PeerGone,
    /// An owner, by its number in `watches`. Later ones come first, because a lost one is removed from the list.
    Owner(std::cmp::Reverse<usize>),
    /// The server wrote to its stderr, or the host has read.
    Stderr,
    /// A child or the leaf changed. Reaping follows every wake anyway.
    Tree,
}

impl TreeDriver {
    /// The driver in a keeper; `supervisor` is the link to its supervisor.
    pub(crate) fn of_keeper(parts: TreeDriverParts, supervisor: SupervisorLink, expires: Option<Moment>) -> TreeDriver {
        TreeDriver { supervisor: Some(supervisor), expires, ..TreeDriver::new(parts, EndedBy::Keeper) }
    }

    /// The driver in a supervisor whose keeper is gone. `unproved` says why an empty tree would prove nothing.
    pub(crate) fn of_supervisor(parts: TreeDriverParts, unproved: Option<String>) -> TreeDriver {
        TreeDriver { unproved, ..TreeDriver::new(parts, EndedBy::Supervisor) }
    }

    fn new(parts: TreeDriverParts, ended_by: EndedBy) -> TreeDriver {
        let TreeDriverParts { tree, record, locked_run, watches, signals, grace, stderr } = parts;
        TreeDriver {
            tree,
            record,
            locked_run,
            watches,
            signals,
            supervisor: None,
            expires: None,
            ended_by,
            grace,
            state: State::Running,
            snapshots: Snapshots::new(Moment::now()),
            ending_since: None,
            ended_input: None,
            other_owner_lost: false,
            leader_told: false,
            peaks: TreePeaks::default(),
            budget: BudgetWatch::default(),
            stderr,
            unproved: None,
            warnings: Vec::new(),
        }
    }

    /// Runs until the tree is over. Applies `first` before anything else.
    pub(crate) fn run(mut self, first: Option<Event>) -> (Receipt, Vec<String>) {
        let mut turn = first.map_or(ControlFlow::Continue(()), |event| self.apply(event));
        loop {
            if let ControlFlow::Break(left) = turn {
                return self.finish(left);
            }
            turn = self.turn();
        }
    }

    /// One turn of the loop: look at the tree, wait for one event or several, handle them, check the deadlines.
    fn turn(&mut self) -> ControlFlow<Over> {
        self.look_at_tree()?;
        if let State::Over { .. } = self.state {
            return ControlFlow::Break(Vec::new());
        }
        match self.wait() {
            Some(mut ready) => {
                ready.sort_by_key(|(source, _)| *source);
                for (source, answer) in ready {
                    self.handle(source, answer)?;
                }
            }
            None => self.handle_blind()?,
        }
        self.tick()
    }

    /// Reaps, and tells the machine what changed.
    fn look_at_tree(&mut self) -> ControlFlow<Over> {
        self.look_at_budgets()?;
        match self.tree.reap() {
            Remaining::Nothing | Remaining::Spared => {
                self.find_reason()?;
                self.apply(Event::Gone)
            }
            Remaining::Members if self.tree.exit.is_some() && !self.leader_told => {
                self.leader_told = true;
                self.find_reason()?;
                // Stop watching the host's pipe: no process reads it any more, so the host may see it break.
                self.watches.retain(|watch| watch.owner != Owner::Stdin);
                // No end was requested yet, and the record says to wait for a request.
                if self.record.patient { ControlFlow::Continue(()) } else { self.apply(Event::LeaderExited) }
            }
            Remaining::Members => ControlFlow::Continue(()),
        }
    }

    /// Ends a tree because of a memory budget. The kernel counts a kill before the process dies, so this comes before its
    /// death is seen.
    fn look_at_budgets(&mut self) -> ControlFlow<Over> {
        let Some(leaf) = self.tree.leaf.as_ref().filter(|_| !self.state.ending()) else {
            return ControlFlow::Continue(());
        };
        let own = leaf.memory_use().map(BudgetUse::of_tree);
        let shared = self.tree.slices.iter().filter_map(BudgetSlice::memory_use);
        let budgets: Vec<BudgetUse> =
            own.into_iter().chain(shared.map(|usage| BudgetUse::shared(&usage, &leaf.scope()))).collect();
        if budgets.is_empty() {
            return ControlFlow::Continue(());
        }
        match self.budget.look(leaf.memory_kills(), &budgets, Moment::now()) {
            BudgetVerdict::Within => ControlFlow::Continue(()),
            BudgetVerdict::Over(budget) => self.apply_end(Reason::MemoryBudget { budget }),
            BudgetVerdict::Killed(budget) => self.apply(Event::Hurry(Reason::MemoryBudget { budget })),
        }
    }

    /// A server that exits at the end of its stdin is often faster than we are. Then the lost owner is the reason, not
    /// the server. The handle is the last in the list: it says its reason before it closes stdin, so we look at it after
    /// stdin. A search from the back would look at it too early.
    fn find_reason(&mut self) -> ControlFlow<Over> {
        let lost = self.watches.iter().filter_map(owner::lost_by_now).reduce(|_, later| later);
        match lost.filter(|_| !self.state.ending()) {
            Some(lost) => self.apply_end(lost),
            None => ControlFlow::Continue(()),
        }
    }

    /// Waits for any event, until the next deadline. `None` when the kernel lets us poll no descriptor.
    fn wait(&self) -> Option<Vec<(DriverSource, PollFlags)>> {
        let mut set = PollSet::default();
        set.add(DriverSource::Signals, self.signals.as_fd(), PollFlags::IN);
        if let Some(supervisor) = &self.supervisor {
            set.add(DriverSource::PeerGone, supervisor.pidfd.as_fd(), PollFlags::IN);
            set.add(DriverSource::Control, supervisor.control.as_fd(), PollFlags::IN);
        }
        for (number, watch) in self.watches.iter().enumerate() {
            set.add(DriverSource::Owner(std::cmp::Reverse(number)), watch.as_fd(), watch.events());
        }
        if let Some((fd, events)) = self.stderr.as_ref().and_then(StderrCopy::waits_for) {
            set.add(DriverSource::Stderr, fd, events);
        }
        for (fd, by_priority) in self.tree.wakers() {
            set.add(DriverSource::Tree, fd, if by_priority { PollFlags::PRI } else { PollFlags::IN });
        }
        let budget = self.budget.deadline().filter(|_| !self.state.ending());
        // While the kernel slows the trees down, it reports so about 100 times a second to the keeper of each. The
        // deadline is enough then.
        if budget.is_none() && !self.state.ending() {
            for events in self.tree.slices.iter().filter_map(BudgetSlice::events) {
                set.add(DriverSource::Tree, events, PollFlags::PRI);
            }
        }
        let deadline =
            [Some(self.snapshots.due), self.expires, budget, self.state.deadline()].into_iter().flatten().min();
        let timeout = deadline.map(|deadline| timeout_until(deadline, Moment::now()));
        // An interrupted poll is a wake without an event; the loop checks everything again.
        set.wait(timeout.as_ref())
    }

    /// We can no longer watch the owners, so we treat them as lost. We still read what we can read without a wait.
    fn handle_blind(&mut self) -> ControlFlow<Over> {
        self.handle_signals()?;
        self.handle_messages()?;
        if self.state.ending() { ControlFlow::Continue(()) } else { self.apply_end(Reason::Starved) }
    }

    fn handle(&mut self, source: DriverSource, answer: PollFlags) -> ControlFlow<Over> {
        match source {
            DriverSource::Tree => ControlFlow::Continue(()),
            DriverSource::Stderr => {
                let copied = self.stderr.as_mut().map_or(Ok(()), StderrCopy::step);
                self.note_log(copied);
                ControlFlow::Continue(())
            }
            DriverSource::Signals => self.handle_signals(),
            DriverSource::Control => self.handle_messages(),
            DriverSource::PeerGone => {
                self.supervisor = None;
                if self.state.ending() || self.record.patient {
                    self.apply(Event::Hurry(Reason::SupervisorKilled))
                } else {
                    self.apply_end(Reason::SupervisorKilled)
                }
            }
            DriverSource::Owner(std::cmp::Reverse(number)) => {
                let Some(reason) = self.watches[number].judge(answer) else { return ControlFlow::Continue(()) };
                self.note_client();
                // A tree that is only observed has a long grace, for the observer. The observer is gone.
                let unseen = self.record.patient && self.watches[number].owner != Owner::Stdin;
                let event = if unseen { Event::Hurry(reason) } else { self.end_event(reason) };
                // A lost owner stays lost; polling it again would only spin.
                let lost = self.watches.remove(number);
                if lost.owner == Owner::Stdin {
                    self.ended_input = Some(lost);
                } else {
                    self.other_owner_lost = true;
                }
                self.apply(event)
            }
        }
    }

    fn handle_signals(&mut self) -> ControlFlow<Over> {
        while let Some(received) = linux::receive(self.signals.as_fd()) {
            let asked = received.queued.filter(|_| received.signal == END_SIGNAL);
            // The keeper ignores all other signals. After a supervisor took over, people send their signals to it.
            let told = self.ended_by == EndedBy::Supervisor
                && matches!(received.signal, libc::SIGTERM | libc::SIGINT | libc::SIGHUP | libc::SIGQUIT);
            match (asked, told) {
                (Some(END_VALUE), _) => self.apply_end(Reason::LEASH_END)?,
                (Some(FORCE_VALUE), _) => self.apply(Event::Hurry(Reason::LEASH_END))?,
                (Some(PRESSURE_VALUE), _) if self.may_stop() => self.apply_end(Reason::MemoryPressure)?,
                (_, true) => self.apply(Event::Nudge)?,
                _ => {}
            }
        }
        ControlFlow::Continue(())
    }

    /// True if the tree may be stopped when memory is short, and no request waits in its stdin. `leash watch` has seen that
    /// it is idle, but can't look into the pipe.
    fn may_stop(&self) -> bool {
        let waits = |watch: &OwnerWatch| rustix::io::ioctl_fionread(watch).unwrap_or(0) > 0;
        let has_input = self.watches.iter().any(|watch| watch.owner == Owner::Stdin && waits(watch));
        self.record.idle_stop.is_some() && !has_input
    }

    fn handle_messages(&mut self) -> ControlFlow<Over> {
        while let Some(supervisor) = &self.supervisor
            && let ChannelRead::Message(order) = channel::receive(supervisor.control.as_fd())
        {
            match order {
                Order::End(why) => self.apply_end(why)?,
                Order::Nudge => self.apply(Event::Nudge)?,
                Order::Hurry => self.apply(Event::Hurry(Reason::LEASH_END))?,
            }
        }
        ControlFlow::Continue(())
    }

    fn apply_end(&mut self, why: Reason) -> ControlFlow<Over> {
        let event = self.end_event(why);
        self.apply(event)
    }

    /// Makes the event for an end. It says whether the server can see the end of its stdin.
    pub(crate) fn end_event(&self, why: Reason) -> Event {
        let stdin_over = why == Reason::StdinClosed
            || self.watches.iter().any(|watch| watch.owner == Owner::Stdin && owner::lost_by_now(watch).is_some());
        Event::End { why, stdin_over }
    }

    /// Handles the deadlines that have passed.
    fn tick(&mut self) -> ControlFlow<Over> {
        let now = Moment::now();
        if self.expires.is_some_and(|expires| now >= expires) {
            self.expires = None;
            self.apply_end(Reason::MaxAge)?;
        }
        if now >= self.snapshots.due {
            self.snapshots.next(now);
            self.snapshot();
            linux::give_back_memory();
        }
        // Use one time for both: between two readings of the clock the deadline could pass unnoticed.
        let now = Moment::now();
        self.wait_for_reader(now);
        self.apply_at(Event::Tick, now)
    }

    /// Delays SIGTERM while the server has not read all of its input: it can't have seen the end of stdin yet. The
    /// delay is limited, and applies only if the closed stdin is all that happened.
    fn wait_for_reader(&mut self, now: Moment) {
        let unread = self.ended_input.as_ref().is_some_and(|input| rustix::io::ioctl_fionread(input).unwrap_or(0) > 0);
        let patient = self.ending_since.is_some_and(|since| now.since(since) < limits::UNREAD);
        if let State::Closing { why: Reason::StdinClosed, until } = &mut self.state
            && now >= *until
            && unread
            && patient
            && !self.other_owner_lost
            && self.tree.exit.is_none()
        {
            *until = now + self.grace;
        }
    }

    /// Lets the machine decide, and does what it decided. Breaks if the tree is over but processes are left.
    fn apply(&mut self, event: Event) -> ControlFlow<Over> {
        self.apply_at(event, Moment::now())
    }

    fn apply_at(&mut self, event: Event, now: Moment) -> ControlFlow<Over> {
        let was_ending = self.state.ending();
        let (state, effect) = std::mem::replace(&mut self.state, State::Running).apply(event, now, self.grace);
        self.state = state;
        let begins = self.state.ending() && !was_ending;
        if begins {
            self.make_room();
            self.note_client();
            self.ending_since = Some(now);
            if effect != Some(Effect::Kill) && !matches!(self.state, State::Over { .. }) {
                self.record.phase = Phase::Ending;
                self.snapshot();
            }
        }
        match effect {
            Some(Effect::Kill) => {
                self.announce(Rung::Kill);
                self.tree.kill_members();
                self.tell_entered();
                return match kill::kill_until_gone(&mut self.tree, self.signals.as_fd()) {
                    Ok(()) => self.apply(Event::Gone),
                    Err(left) => ControlFlow::Break(left),
                };
            }
            Some(Effect::Term) => {
                self.tree.term();
                self.announce(Rung::Term);
            }
            None if begins && !matches!(self.state, State::Over { .. }) => self.announce(Rung::Eof),
            None => {}
        }
        ControlFlow::Continue(())
    }

    /// Takes the client from the message of the program that ends the tree, for the receipt.
    fn note_client(&mut self) {
        if self.record.client.is_none() {
            self.record.client = self.watches.iter().find_map(|watch| owner::stated_end(watch)?.client);
        }
    }

    /// Frees descriptors in the keeper, which needs none of those it was started with: the end must not fail because no
    /// descriptor is free.
    fn make_room(&self) {
        if self.ended_by == EndedBy::Keeper && self.ending_since.is_none() {
            spawn::close_stdin_and_stdout();
        }
    }

    /// Tells the supervisor which step the end has reached.
    fn announce(&self, rung: Rung) {
        let (State::Closing { why, .. } | State::Terminating { why, .. } | State::Killing { why }) = &self.state else {
            return;
        };
        self.tell(&KeeperReport::Ending { why: why.clone(), rung, members: self.record.members.len() });
    }

    pub(crate) fn tell(&self, report: &KeeperReport) {
        if let Some(supervisor) = &self.supervisor {
            channel::send(supervisor.control.as_fd(), report);
        }
    }

    /// Writes the members of the tree to the ledger, if they have changed.
    fn snapshot(&mut self) {
        let count = self.tree.count_members();
        let mut members = count.members;
        self.peaks.members = self.peaks.members.max(members.len());
        self.peaks.memory_bytes = self.peaks.memory_bytes.max(count.memory_bytes);
        if !count.complete {
            // Members that were not seen this time may still be there.
            let known = std::mem::take(&mut self.record.members);
            let unseen: Vec<Identity> =
                known.into_iter().filter(|id| !members.iter().any(|seen| seen.is(id))).collect();
            members.extend(unseen);
        }
        members.truncate(limits::RECORDED_MEMBERS);
        self.tell_entered();
        let unchanged = same(&members, &self.record.members) && self.tree.entered.iter().eq(&self.record.entered);
        if self.tree.proc.is_none() || (unchanged && self.record.phase != Phase::Ending) {
            return;
        }
        self.record.members = members;
        self.record.memory_bytes = count.memory_bytes;
        self.record.entered = self.tree.entered.iter().copied().collect();
        // A full disk must not stop the keeper. The ledger keeps the members written last.
        if let Err(error) = self.locked_run.write(&self.record) {
            self.warn(format!("the ledger is not up to date: {error}"));
        }
    }

    /// Tells the supervisor of PID namespaces that members were seen to enter since the record was written.
    fn tell_entered(&self) {
        if !self.tree.entered.iter().eq(&self.record.entered) {
            self.tell(&KeeperReport::Entered(self.tree.entered.iter().copied().collect()));
        }
    }

    /// Warns once if lines are missing in the log. The server and the host notice nothing of it.
    fn note_log(&mut self, copied: std::io::Result<()>) {
        if let Err(error) = copied {
            let dir = logs::dir(&self.record.receipts);
            self.warn(format!("the log in {} is not complete: {error}", dir.display()));
        }
    }

    fn warn(&mut self, text: String) {
        if self.warnings.contains(&text) {
            return;
        }
        self.tell(&KeeperReport::Warning(text.clone()));
        self.warnings.push(text);
    }

    /// Writes the receipt and removes the record.
    fn finish(mut self, mut left: Vec<LeftOver>) -> (Receipt, Vec<String>) {
        self.make_room();
        let unproved = self.tree.unproved();
        left.extend(
            unproved
                .into_iter()
                .filter(|stray| stray.pid == 0 || !left.iter().any(|known| known.pid == stray.pid))
                .collect::<Vec<_>>(),
        );
        left.extend(self.unproved.take().map(|why| LeftOver { pid: 0, name: String::new(), why }));
        if left.len() > limits::LEFT_NAMED {
            let more = left.split_off(limits::LEFT_NAMED).len();
            left.push(LeftOver { pid: 0, name: String::new(), why: format!("and {more} more") });
        }
        let (why, how) = match &self.state {
            State::Over { why, how } => (why.clone(), *how),
            State::Closing { why, .. } | State::Terminating { why, .. } | State::Killing { why } => {
                (why.clone(), How::Kill)
            }
            State::Running => (Reason::ServerExited, How::Exited),
        };
        kill::release_spared(&self.tree);
        let mut memory_kills = 0;
        if let Some(leaf) = &self.tree.leaf {
            memory_kills = leaf.memory_kills();
            leaf.remove();
        }
        let read = self.stderr.as_mut().map_or(Ok(()), StderrCopy::read_rest);
        self.note_log(read);
        let has_crashed = matches!(why, Reason::ServerExited | Reason::MemoryBudget { .. } | Reason::NotInitialized)
            && self.tree.exit != Some(Exit::Code(0));
        let last_lines = self.stderr.as_ref().filter(|_| has_crashed).map(StderrCopy::last_lines);
        let tree = TreeEnd {
            stderr: last_lines.unwrap_or_default(),
            memory_kills,
            fate: if left.is_empty() { Fate::Gone } else { Fate::Left },
            exit: self.tree.exit,
            left,
            spared: self.tree.spared_now(),
            members: self.peaks.members.max(self.record.members.len()),
            memory_bytes: self.peaks.memory_bytes.max(self.record.memory_bytes),
            ..self.record.tree_end(how)
        };
        let took = self.ending_since.map(|since| Moment::now().since(since)).unwrap_or_default();
        let took_ms = duration::as_ms(took);
        let receipt = self.record.receipt(why, self.ended_by, took_ms, tree);
        // Write the receipt into the record first: if we are killed on the way, a sweep finds it there and writes no
        // second one.
        self.record.over = Some(receipt.clone());
        let _ = self.locked_run.write(&self.record);
        if let Err(error) = receipts::append(&self.record.receipts, &receipt) {
            self.warn(format!("cannot write the receipt to {}: {error}", self.record.receipts.display()));
        }
        if let Some(stderr) = &mut self.stderr {
            stderr.send_rest();
        }
        self.tell(&KeeperReport::Over(Box::new(receipt.clone())));
        if let Some(supervisor) = &self.supervisor {
            // A stopped supervisor would stay behind with nothing left to do.
            let _ = rustix::process::pidfd_send_signal(&supervisor.pidfd, rustix::process::Signal::CONT);
        }
        self.locked_run.remove();
        (receipt, self.warnings)
    }
}

/// True if two lists name the same processes, in any order.
fn same(a: &[Identity], b: &[Identity]) -> bool {
    let key = |list: &[Identity]| {
        let mut pids: Vec<(i32, u64)> = list.iter().map(|id| (id.pid, id.start)).collect();
        pids.sort_unstable();
        pids
    };
    a.len() == b.len() && key(a) == key(b)
}
