//! The supervisor: what the host has as its child. It watches the owners, passes on signals, mirrors the server's exit, and
//! takes the tree over when the keeper is gone.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, WaitOptions, WaitStatus, getpid};

use super::captive::{Captive, Remaining};
use super::control::{Failure, Order, Orders, Word};
use super::error::StartError;
use super::launch;
use super::launch::KeeperLaunch;
use super::machine::{Event as MachineEvent, State};
use super::spec::Spec;
use super::warden::{END_SIGNAL, END_VALUE, FORCE_VALUE, Most, Snapshots, Warden};
use crate::contain::leaf::Leaf;
use crate::contain::unit::UserBus;
use crate::ledger::receipts;
use crate::ledger::store::{Entry, Store};
use crate::owner;
use crate::owner::{Parent, Watch};
use crate::places::Places;
use crate::platform::channel::{self, Heard};
use crate::platform::identity;
use crate::platform::linux;
use crate::platform::linux::InheritedSignals;
use crate::platform::poll;
use crate::platform::poll::Sight;
use crate::platform::proc::{Proc, Stat};
use crate::platform::spawn;
use crate::tree::sweep;
use leash_model::clock::{Moment, timeout_until};
use leash_model::containment::{Containment, Wish};
use leash_model::event::Event;
use leash_model::limits;
use leash_model::receipt::{EndedBy, Reason, Receipt};
use leash_model::record::Record;

/// What a caller must have taken in the first instructions of `main`, before anything could change.
#[derive(Debug)]
pub struct FirstLook {
    parent: Parent,
    signals: InheritedSignals,
}

impl FirstLook {
    /// Takes hold of the parent and looks at the inherited signals.
    pub fn take() -> FirstLook {
        FirstLook { parent: Parent::take(), signals: InheritedSignals::look() }
    }

    /// What was taken and seen.
    pub fn into_parts(self) -> (Parent, InheritedSignals) {
        (self.parent, self.signals)
    }

    /// The terminal, when it is natural that we die with it.
    pub fn terminal(&self) -> Option<crate::owner::Watch> {
        crate::owner::terminal_of(&Proc::own().ok()?, self.signals)
    }
}

/// Runs a server to its end, as this process: blocks, becomes a subreaper, and takes the process's signals. For programs that
/// exist for this (`leash run`); a program with a life of its own uses [`super::Tree`].
pub fn supervise(
    spec: &Spec,
    places: &Places,
    first: FirstLook,
    tell: &mut dyn FnMut(Event),
) -> Result<Receipt, StartError> {
    supervise_for(spec, places, first, Vec::new(), tell)
}

/// The same, with owners that the caller has found.
pub(crate) fn supervise_for(
    spec: &Spec,
    places: &Places,
    first: FirstLook,
    owners: Vec<Watch>,
    tell: &mut dyn FnMut(Event),
) -> Result<Receipt, StartError> {
    let supervisor = Supervisor::start(spec, places, first, owners, tell)?;
    supervisor.run(tell)
}

struct Supervisor {
    keeper: i32,
    keeper_fd: OwnedFd,
    control: OwnedFd,
    signals: OwnedFd,
    watches: Vec<Watch>,
    record: Record,
    entry: Entry,
    proc: Option<Proc>,
    /// We had children before we were leash (`helper & exec leash run ...`): they are not ours to end.
    has_strangers: bool,
    grace: Duration,
    phase: Waiting,
    /// What the caller asked for: the server can't change it, as it can the record in the ledger.
    wish: Wish,
    /// The server ran, by the keeper's word.
    started: bool,
    last_word: Option<LastWord>,
    /// It is dead; its number is no longer ours to use.
    keeper_dead: bool,
    /// It left by itself, with its work done; `false` for a keeper that was killed.
    keeper_exited: bool,
    /// Why the tree should end, as we told the keeper.
    asked: Option<Reason>,
    /// Why it ends, once the keeper has said so.
    ending: Option<Reason>,
    /// Since when the keeper is stopped, while it ends the tree.
    stopped_since: Option<Moment>,
}

/// The keeper's last word. It ends nothing by itself: every process of the same user can write to the control socket.
#[derive(Debug)]
enum LastWord {
    /// The tree is over.
    Over(Box<Receipt>),
    /// The server never ran.
    Failed(Failure),
}

/// What the supervisor waits for from its keeper.
#[derive(Debug)]
enum Waiting {
    /// The server to run.
    Start { give_up: Moment },
    /// Nothing: all is well.
    Nothing,
    /// A sign that an order was heard.
    Answer { give_up: Moment },
    /// The end.
    End { give_up: Moment },
    /// Its exit, after its last word.
    Exit { give_up: Moment },
}

impl Waiting {
    fn give_up(&self) -> Option<Moment> {
        match self {
            Waiting::Nothing => None,
            Waiting::Start { give_up }
            | Waiting::Answer { give_up }
            | Waiting::End { give_up }
            | Waiting::Exit { give_up } => Some(*give_up),
        }
    }
}

impl Supervisor {
    fn start(
        spec: &Spec,
        places: &Places,
        first: FirstLook,
        owners: Vec<Watch>,
        tell: &mut dyn FnMut(Event),
    ) -> Result<Supervisor, StartError> {
        let signals = linux::listen(&listened(first.signals)).map_err(StartError::Signals)?;
        linux::survive_file_size_limit();
        let proc = Proc::own().ok();
        let has_strangers = proc.is_some_and(|proc| !proc.children(getpid().as_raw_pid()).proves_none());
        // Without a subreaper nothing above `group` can be promised; the keeper would find out, but the kernel is too old for pidfds too.
        rustix::process::set_child_subreaper(Some(getpid())).map_err(StartError::Subreaper)?;
        let mut watches =
            owner::find(&spec.owners, first.parent, proc.as_ref(), first.signals).map_err(StartError::Owner)?;
        watches.extend(owners);
        let command = launch::command_line(spec)?;
        let store = Store::open(&places.runtime_dir).map_err(StartError::Ledger)?;
        let swept = sweep::sweep(&store, proc.as_ref());
        swept.receipts.into_iter().for_each(|receipt| tell(Event::Swept(receipt)));
        swept.warnings.into_iter().for_each(|warning| tell(Event::Warning(warning)));

        let record = launch::new_record(spec, &places.receipts, &watches, proc.as_ref());
        let entry = store.create(&record).map_err(StartError::Ledger)?;
        let orders = Orders {
            record: record.clone(),
            wish: spec.contain,
            caps: spec.caps,
            max_age_ms: spec.max_age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
            ignored_signals: spec.ignored(first.signals).to_bits(),
            env: spec.environment(),
            runtime_dir: places.runtime_dir.clone(),
            bus: UserBus { address: places.bus_address.clone(), runtime_dir: places.xdg_runtime_dir.clone() },
            pid_one: getpid().as_raw_pid() == 1,
        };
        let launch = KeeperLaunch {
            program: &places.program,
            orders: &orders,
            command: &command,
            entry: &entry,
            watches: &watches,
        };
        match launch.launch() {
            Ok(keeper) => Ok(Supervisor {
                keeper: keeper.pid,
                keeper_fd: keeper.pidfd,
                control: keeper.control,
                signals,
                watches,
                record,
                entry,
                proc,
                has_strangers,
                grace: spec.pace(),
                phase: Waiting::Start { give_up: Moment::now() + limits::START },
                wish: spec.contain,
                started: false,
                last_word: None,
                keeper_dead: false,
                keeper_exited: false,
                asked: None,
                ending: None,
                stopped_since: None,
            }),
            Err(error) => {
                entry.remove();
                Err(error)
            }
        }
    }

    fn run(mut self, tell: &mut dyn FnMut(Event)) -> Result<Receipt, StartError> {
        // The host's pipes belong to the host and the server; a copy of stdout here would hide its end. stderr is ours to
        // speak on.
        spawn::let_go_of_stdin_and_stdout();
        // From here on it only waits, as long as the server lives: what reading the command line took is not needed again.
        linux::give_back_memory();
        let why = loop {
            if let Some(why) = self.step(tell) {
                break why;
            }
        };
        match self.last_word.take() {
            Some(word) if self.is_believable(&word) => self.conclude(word),
            _ => self.take_over(why, tell),
        }
    }

    /// Whether the last word may be believed, now that the keeper is gone. `gone` takes a proof of our own: no child of ours is
    /// left, and no member of the leaf. That something is left is believed of a keeper that has left by itself.
    fn is_believable(&self, word: &LastWord) -> bool {
        // Our own end is the end of everybody in a namespace of which we are the first process.
        let is_first = getpid().as_raw_pid() == 1;
        let claims_gone = match word {
            LastWord::Over(receipt) => receipt.run == self.record.run && receipt.all_gone(),
            LastWord::Failed(_) => true,
        };
        is_first || if claims_gone { self.proves_gone() } else { self.keeper_exited }
    }

    /// Whether everybody is gone, by our own look.
    fn proves_gone(&self) -> bool {
        let written = self.entry.read().ok().flatten();
        let Ok(leaf) = self.find_leaf(written.as_ref()) else { return false };
        if self.has_strangers {
            // Our own children hide what the keeper may have left to us. It proved the same before it left.
            return self.keeper_exited && !leaf.as_ref().is_some_and(Leaf::populated);
        }
        // No child is reaped while another one lives: in `group` the number of a dead leader is what the group is known by.
        let children = self.proc.map(|proc| proc.children(getpid().as_raw_pid()).found).unwrap_or_default();
        if !children.into_iter().all(identity::number_has_ended) {
            return false;
        }
        let mut captive = Captive::new(Containment::Reaper, self.proc, self.record.spare.clone(), false);
        captive.leaf = leaf;
        captive.entered =
            written.into_iter().flat_map(|record| record.entered).chain(self.record.entered.clone()).collect();
        captive.reap() != Remaining::Members && captive.unproved().is_empty()
    }

    fn conclude(self, word: LastWord) -> Result<Receipt, StartError> {
        match word {
            LastWord::Over(receipt) => Ok(*receipt),
            LastWord::Failed(failure) => {
                self.entry.remove();
                Err(failure.into())
            }
        }
    }

    /// The tree's leaf. Where it is in `leaf` we know; a scope of systemd has the run's name. Any other path in the record was put
    /// there by somebody else.
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

    /// Waits for one thing to happen and deals with it.
    /// `Some` when the keeper is gone: the reason, if there is no better one.
    fn step(&mut self, tell: &mut dyn FnMut(Event)) -> Option<Reason> {
        let answers = self.wait().unwrap_or_else(|| {
            // Owners can't be watched any more. What can be read without a wait still is.
            if self.asked.is_none() {
                self.order(Reason::Starved);
            }
            vec![PollFlags::IN; 3]
        });
        let awake = |index: usize| answers.get(index).is_some_and(|answer| !answer.is_empty());
        if awake(1) || awake(2) {
            self.hear_keeper(tell);
        }
        if awake(0) {
            self.hear_signals();
        }
        if awake(2) {
            self.reap();
        }
        if self.keeper_dead {
            // It may have said its last word between the look above and its death.
            self.hear_keeper(tell);
            return Some(Reason::KeeperKilled);
        }
        for index in (0..self.watches.len()).rev() {
            let answer = answers.get(3 + index).copied().unwrap_or(PollFlags::empty());
            if let Some(reason) = self.watches[index].judge(answer) {
                self.watches.remove(index);
                self.order(reason);
            }
        }
        let now = Moment::now();
        let is_late = self.phase.give_up().is_some_and(|give_up| now >= give_up);
        (is_late || self.keeper_is_stopped(now)).then(|| self.give_up_keeper())
    }

    /// Whether the keeper was stopped while it ends the tree, and for longer than a moment. The ladder may take minutes: a keeper that
    /// goes on with it is waited for, a stopped one is not.
    fn keeper_is_stopped(&mut self, now: Moment) -> bool {
        if !matches!(self.phase, Waiting::End { .. }) {
            return false;
        }
        let stat = self.proc.and_then(|proc| proc.stat(self.keeper));
        self.stopped_since = stat.filter(Stat::is_stopped).and(self.stopped_since.or(Some(now)));
        self.stopped_since.is_some_and(|since| now.since(since) >= limits::KEEPER_ANSWER)
    }

    /// `None` when no descriptor may be polled.
    fn wait(&self) -> Option<Vec<PollFlags>> {
        let mut fds = vec![
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.control, PollFlags::IN),
            PollFd::new(&self.keeper_fd, PollFlags::IN),
        ];
        fds.extend(self.watches.iter().map(Watch::poll));
        let now = Moment::now();
        let next_look = match self.phase {
            Waiting::End { give_up } => Some(give_up.min(now + limits::KEEPER_ANSWER)),
            _ => self.phase.give_up(),
        };
        let timeout = next_look.map(|deadline| timeout_until(deadline, now));
        match poll::poll(&mut fds, timeout.as_ref()) {
            Sight::Clear => Some(fds.iter().map(PollFd::revents).collect()),
            Sight::Blind => None,
        }
    }

    /// Hears everything that was said. No word may move a deadline that another one has set: they can be forged.
    fn hear_keeper(&mut self, tell: &mut dyn FnMut(Event)) {
        loop {
            let word = match channel::receive(self.control.as_fd()) {
                Heard::Message(word) => word,
                Heard::Nothing | Heard::Closed => return,
            };
            match word {
                Word::Started { leader, containment, refused } if !self.started => {
                    self.started = true;
                    // An order may have been given while the server was being started.
                    if matches!(self.phase, Waiting::Start { .. }) {
                        self.phase = match self.asked {
                            Some(_) => Waiting::Answer { give_up: Moment::now() + limits::KEEPER_ANSWER },
                            None => Waiting::Nothing,
                        };
                    }
                    tell(Event::Started { name: self.record.name.clone(), leader, containment, refused });
                }
                Word::Started { .. } => {}
                Word::Ending { why, rung, members } => {
                    if !matches!(self.phase, Waiting::End { .. } | Waiting::Exit { .. }) {
                        let longest = self.grace * 2 + limits::UNREAD + limits::GIVE_UP + limits::KEEPER_SLACK;
                        self.phase = Waiting::End { give_up: Moment::now() + longest };
                    }
                    self.ending.get_or_insert_with(|| why.clone());
                    tell(Event::Ending { why, rung, members });
                }
                Word::Warning(text) => tell(Event::Warning(text)),
                Word::Over(receipt) => self.last_word(LastWord::Over(receipt)),
                Word::Failed(failure) => self.last_word(LastWord::Failed(failure)),
            }
        }
    }

    /// The first last word counts. A keeper leaves within a millisecond of it; one that does not never said it, or is stopped.
    fn last_word(&mut self, word: LastWord) {
        if self.last_word.is_none() {
            self.last_word = Some(word);
            self.phase = Waiting::Exit { give_up: Moment::now() + limits::KEEPER_SLACK };
        }
    }

    /// Reaps the keeper, if it is dead: then its orphans are ours, and whoever ends them must do their reaping. The first process
    /// of a container also reaps strangers, as long as the keeper lives.
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
        // Somebody who traces a keeper keeps its zombie from us, but not its orphans: dead it is.
        self.keeper_dead |= identity::has_ended(self.keeper_fd.as_fd());
    }

    /// Takes what `wait` said of the keeper.
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

    fn hear_signals(&mut self) {
        while let Some(received) = linux::receive(self.signals.as_fd()) {
            match received.signal {
                END_SIGNAL if received.queued == Some(END_VALUE) => self.order(Reason::Requested),
                END_SIGNAL if received.queued == Some(FORCE_VALUE) => {
                    // The keeper may be gone or stuck: then this is what we have to do it with.
                    self.grace = Duration::ZERO;
                    self.order(Reason::Requested);
                    channel::send(self.control.as_fd(), &Order::Hurry);
                }
                libc::SIGCHLD => self.reap(),
                // Somebody else's SIGUSR1 has no meaning here; it may not end leash either.
                END_SIGNAL => {}
                _ if self.ending() => channel::send(self.control.as_fd(), &Order::Nudge),
                signal => self.order(Reason::Signal { signal }),
            }
        }
    }

    fn ending(&self) -> bool {
        matches!(self.phase, Waiting::Answer { .. } | Waiting::End { .. } | Waiting::Exit { .. })
    }

    /// Tells the keeper to end the tree, and expects an answer. The keeper has usually noticed by itself.
    fn order(&mut self, why: Reason) {
        channel::send(self.control.as_fd(), &Order::End(why.clone()));
        self.asked.get_or_insert(why);
        if matches!(self.phase, Waiting::Nothing) {
            self.phase = Waiting::Answer { give_up: Moment::now() + limits::KEEPER_ANSWER };
        }
    }

    /// A keeper that does not answer is stopped or stuck. It is our own child; without it the tree comes to us.
    fn give_up_keeper(&mut self) -> Reason {
        let _ = linux::kill_own_child(self.keeper);
        // Its death is waited for, its zombie is not: somebody who traces it may never hand that over.
        let now = Moment::now();
        let patience = timeout_until(now + limits::KEEPER_SLACK, now);
        let _ = poll::poll(&mut [PollFd::new(&self.keeper_fd, PollFlags::IN)], Some(&patience));
        self.reap();
        Reason::KeeperStuck
    }

    /// Ends the tree that the keeper left: all of it is adopted by us by now.
    fn take_over(mut self, why: Reason, tell: &mut dyn FnMut(Event)) -> Result<Receipt, StartError> {
        let started = self.started;
        let written = self.entry.read().ok().flatten();
        let leaf = self.find_leaf(written.as_ref());
        if let Some(record) = written {
            let over = record.over.clone();
            self.learn(record);
            if let Some(receipt) = over.filter(|over| over.run == self.record.run && self.proves_gone()) {
                // The keeper was killed with its work done; only its last words are missing.
                if let Err(error) = receipts::append_once(&self.record.receipts, &receipt) {
                    tell(Event::Warning(format!("cannot write {}: {error}", self.record.receipts.display())));
                }
                self.entry.remove();
                return Ok(receipt);
            }
        }
        if let Some(proc) = self.proc.filter(|_| self.has_strangers) {
            let receipt = self.take_over_among_strangers(why, &proc, tell);
            return if started { Ok(receipt) } else { Err(never_ran()) };
        }
        // A namespace died with its keeper; its first process is ours to reap like any other.
        let pid_one = getpid().as_raw_pid() == 1;
        let mut captive = Captive::new(self.reach(), self.proc, self.record.spare.clone(), pid_one);
        captive.leader = self.record.leader.map(|id| id.pid).filter(|pid| identity::is_own_child(*pid));
        captive.entered = self.record.entered.iter().copied().collect();
        let unproved = leaf.as_ref().err().map(|error| format!("its cgroup can't be looked at: {error}"));
        captive.leaf = leaf.ok().flatten();
        let warden = Warden {
            captive,
            unproved,
            record: self.record,
            entry: self.entry,
            watches: self.watches,
            signals: self.signals,
            peer: None,
            expires: None,
            ended_by: EndedBy::Supervisor,
            grace: self.grace,
            state: State::Running,
            snapshots: Snapshots::new(Moment::now()),
            ending_since: None,
            leader_told: false,
            ended_input: None,
            other_owner_lost: false,
            most: Most::default(),
            warnings: Vec::new(),
        };
        let begin = match self.ending {
            // The end was on its way and may have used up its grace.
            Some(why) => MachineEvent::Hurry(why),
            // Nobody can look any more at what it does.
            None if warden.record.patient => MachineEvent::Hurry(self.asked.unwrap_or(why)),
            // What happened to the keeper is only the reason if there is no other.
            None => warden.end(self.asked.unwrap_or(why)),
        };
        let (receipt, warnings) = warden.run(Some(begin));
        warnings.into_iter().for_each(|warning| tell(Event::Warning(warning)));
        if started {
            return Ok(receipt);
        }
        Err(never_ran())
    }

    /// Takes what only the keeper knew, for the receipt. The record lies where the server can write to it: whom to spare, where the
    /// leaf is and where receipts go stays as we wrote it.
    fn learn(&mut self, written: Record) {
        self.record.containment = written.containment;
        self.record.refused = written.refused;
        self.record.leader = written.leader;
        self.record.members = written.members;
        self.record.entered = written.entered;
        self.record.memory_bytes = written.memory_bytes;
    }

    /// How far an end reaches. Only what was asked for, or a foreign /proc, limits it to the process group.
    fn reach(&self) -> Containment {
        let claimed = self.record.containment.unwrap_or(Containment::Reaper);
        let is_group = self.wish.exactly == Some(Containment::Group) || self.proc.is_none();
        if claimed == Containment::Group && !is_group { Containment::Reaper } else { claimed }
    }

    /// Orphans of the keeper can't be told from orphans of our other children: only what can be proved is ended.
    fn take_over_among_strangers(self, why: Reason, proc: &Proc, tell: &mut dyn FnMut(Event)) -> Receipt {
        let reason = self.ending.or(self.asked).unwrap_or(why);
        let (receipt, warning) = sweep::end_run(self.entry, self.record, proc, reason);
        warning.into_iter().for_each(|warning| tell(Event::Warning(warning)));
        receipt
    }
}

fn never_ran() -> StartError {
    StartError::Keeper(std::io::Error::other("it ended before the server ran"))
}

/// The signals a supervisor takes. What was ignored at the start stays ignored: `nohup` means it, and so does a shell that
/// starts a background job with SIGINT ignored. SIGTERM always counts.
pub fn listened(inherited: InheritedSignals) -> Vec<i32> {
    let optional = [libc::SIGINT, libc::SIGHUP, libc::SIGQUIT].into_iter().filter(|signal| !inherited.ignores(*signal));
    [libc::SIGTERM, libc::SIGCHLD, END_SIGNAL].into_iter().chain(optional).collect()
}
