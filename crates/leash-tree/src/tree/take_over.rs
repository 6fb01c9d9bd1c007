//! The end of a supervised tree, once its keeper is gone: the supervisor proves that nothing is left, or ends the rest
//! itself.

use std::io;

use rustix::process::getpid;

use super::contained_tree::{ContainedTree, Remaining};
use super::driver::{TreeDriver, TreeDriverParts};
use super::failure::ended_early;
use super::launch::NO_KEEPER;
use super::machine::Event as MachineEvent;
use super::stderr_copy::{StderrCopy, StderrPipe};
use super::supervised::{LastMessage, SupervisedTree};
use super::supervisor::SupervisorProcess;
use crate::contain::leaf::Leaf;
use crate::ledger::receipts;
use crate::platform::identity;
use crate::platform::proc::Proc;
use crate::tree::sweep;
use leash_model::containment::Containment;
use leash_model::event::Event;
use leash_model::receipt::{Reason, Receipt};
use leash_model::record::Record;
use leash_model::start_failure::StartFailure;

/// Copies what is left in the pipe of the server's stderr, for ends that run no driver.
fn copy_rest(pipe: Option<StderrPipe>, record: &Record) {
    if let Some(mut copy) = pipe.map(|pipe| StderrCopy::new(pipe, record)) {
        // The killed keeper may have taken a part of a line with it, so the log is not complete anyway.
        let _ = copy.read_rest();
        copy.send_rest();
    }
}

impl SupervisedTree {
    /// The result of the tree, now that its keeper is gone. `why` is the reason to give if there is no better one.
    pub(super) fn finish(
        mut self,
        process: &SupervisorProcess,
        why: Reason,
        tell: &mut dyn FnMut(Event),
    ) -> Result<Receipt, StartFailure> {
        match self.last_message.take() {
            Some(message) if self.is_believable(process, &message) => self.conclude(message),
            _ => self.take_over(process, why, tell),
        }
    }

    /// True if the supervisor may believe the keeper's last message, now that the keeper is gone. For `gone` the
    /// supervisor needs its own proof: it has no child left, and the leaf has no member. It believes that something is
    /// left only from a keeper that exited by itself.
    fn is_believable(&self, process: &SupervisorProcess, message: &LastMessage) -> bool {
        // If we are the first process of a PID namespace, the kernel kills all other processes in it when we exit.
        let is_first = getpid().as_raw_pid() == 1;
        let claims_gone = match message {
            LastMessage::Over(receipt) => receipt.run == self.record.run && receipt.all_gone(),
            LastMessage::Failed(_) => true,
        };
        is_first || if claims_gone { self.proves_gone(process) } else { self.keeper_exited }
    }

    /// True if our own look proves that every process of the tree is gone.
    fn proves_gone(&self, process: &SupervisorProcess) -> bool {
        let written = self.locked_run.read().ok().flatten();
        let Ok(leaf) = self.find_leaf(written.as_ref()) else { return false };
        if process.has_other_children {
            // Our other children hide the processes that the keeper may have left to us. The keeper made the same proof
            // before it exited.
            return self.keeper_exited && !leaf.as_ref().is_some_and(Leaf::populated);
        }
        // Reap no child while another one lives: in `group` the number of the dead leader identifies the group.
        let children = process.proc.map(|proc| proc.children(getpid().as_raw_pid()).found).unwrap_or_default();
        let is_settled = |child: i32| process.others.contains(&child) || identity::number_has_ended(child);
        if !children.into_iter().all(is_settled) {
            return false;
        }
        let mut tree = ContainedTree::new(Containment::Reaper, process.proc, self.record.spare.clone(), false);
        tree.others = process.others.clone();
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

    /// Ends the tree that the keeper left. The kernel has made us the parent of all of it.
    fn take_over(
        mut self,
        process: &SupervisorProcess,
        why: Reason,
        tell: &mut dyn FnMut(Event),
    ) -> Result<Receipt, StartFailure> {
        let started = self.started;
        let written = self.locked_run.read().ok().flatten();
        let leaf = self.find_leaf(written.as_ref());
        if let Some(record) = written {
            let over = record.over.clone();
            self.learn(record);
            if let Some(receipt) = over.filter(|over| over.run == self.record.run && self.proves_gone(process)) {
                // The keeper was killed after it had ended the tree. Only its last message is missing.
                if let Err(error) = receipts::append_once(&self.record.receipts, &receipt) {
                    tell(Event::Warning(format!("cannot write {}: {error}", self.record.receipts.display())));
                }
                copy_rest(self.stderr, &self.record);
                self.locked_run.remove();
                return Ok(receipt);
            }
        }
        if let Some(proc) = process.proc.filter(|_| process.has_other_children) {
            let receipt = self.take_over_among_other_children(why, &proc, tell);
            return if started { Ok(receipt) } else { Err(ended_early(NO_KEEPER)) };
        }
        // The kernel ended a PID namespace together with its keeper. Its first process is now our child, and we reap it
        // like any other.
        let pid_one = getpid().as_raw_pid() == 1;
        let mut tree = ContainedTree::new(self.reach(process), process.proc, self.record.spare.clone(), pid_one);
        tree.leader = self.record.leader.map(|id| id.pid).filter(|pid| identity::is_own_child(*pid));
        tree.entered = self.entered.clone();
        tree.others = process.others.clone();
        let unproved = leaf.as_ref().err().map(|error| format!("its cgroup can't be read: {error}"));
        tree.leaf = leaf.ok().flatten();
        let watches = self.take_watches();
        let record = self.record;
        let guarded = TreeDriverParts {
            tree,
            locked_run: self.locked_run,
            watches,
            signals: process.signals.clone(),
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
    fn reach(&self, process: &SupervisorProcess) -> Containment {
        let claimed = self.record.containment.unwrap_or(Containment::Reaper);
        let is_group = self.wish.exactly == Some(Containment::Group) || process.proc.is_none();
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
