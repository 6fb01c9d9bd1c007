//! The supervisor: the process that the host has as its child. It watches the owners, passes on signals, mirrors the
//! server's exit, and takes the tree over when the keeper is gone. The supervisor of a gateway holds many trees
//! (`supervisor_of_many`).

use std::cell::Cell;
use std::collections::HashSet;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;

use rustix::event::PollFlags;
use rustix::process::getpid;

use super::failure::failed;
use super::first_look::{FirstLook, listened};
use super::spec::Spec;
use super::supervised::{ServerStdio, SupervisedTree, TreeSource, TreeStart, note_failure};
use crate::ledger::receipts;
use crate::owner::{self, Parent};
use crate::places::Places;
use crate::platform::linux::{self, InheritedSignals, ReceivedSignal};
use crate::platform::poll::PollSet;
use crate::platform::proc::Proc;
use crate::platform::spawn;
use leash_model::clock::{Moment, timeout_until};
use leash_model::event::Event;
use leash_model::limits;
use leash_model::receipt::Receipt;
use leash_model::start_failure::StartFailure;

/// Runs a server to its end, as this process: blocks, becomes a subreaper, and takes the process's signals. For
/// programs that exist only for this (`leash run`). A program that does other work too uses [`super::Tree`].
pub fn supervise(
    spec: &Spec,
    places: &Places,
    first: FirstLook,
    tell: &mut dyn FnMut(Event),
) -> Result<Receipt, StartFailure> {
    let started = SupervisorProcess::new(first).and_then(|(process, parent)| {
        let tree = start(&process, parent, spec, places, tell)?;
        Ok((process, tree))
    });
    match started {
        Ok((process, tree)) => run(&process, tree, tell)
            .inspect_err(|failure| note_failure(spec, places, failure, receipts::append_once, tell)),
        Err(failure) => {
            note_failure(spec, places, &failure, receipts::append, tell);
            Err(failure)
        }
    }
}

/// The process that supervises, apart from its trees.
pub(super) struct SupervisorProcess {
    pub(super) signals: Rc<OwnedFd>,
    pub(super) inherited: InheritedSignals,
    pub(super) proc: Option<Proc>,
    /// We had children before we were leash (`helper & exec leash run ...`). We must not end them.
    pub(super) has_other_children: bool,
    /// Children that do not belong to the tree at hand: the keepers of other trees, and processes that leash could not end.
    pub(super) others: HashSet<i32>,
    /// The limit on descriptors that servers inherit; `None` if this process has not changed its own.
    pub(super) most_files: Option<u64>,
    swept: Cell<Option<Moment>>,
}

impl SupervisorProcess {
    /// Makes this process a supervisor. Also returns its parent.
    pub(super) fn new(first: FirstLook) -> Result<(SupervisorProcess, Parent), StartFailure> {
        let (parent, inherited) = first.into_parts();
        let signals = linux::listen(&listened(inherited)).map_err(|errno| failed("cannot listen to signals", errno))?;
        linux::survive_file_size_limit();
        let proc = Proc::own().ok();
        let has_other_children = proc.is_some_and(|proc| !proc.children(getpid().as_raw_pid()).proves_none());
        // Without a subreaper leash can promise nothing above `group`. The keeper would notice too, but such a kernel
        // is also too old for pidfds.
        rustix::process::set_child_subreaper(Some(getpid()))
            .map_err(|errno| failed("cannot become a subreaper", errno))?;
        let process = SupervisorProcess {
            signals: Rc::new(signals),
            inherited,
            proc,
            has_other_children,
            others: HashSet::new(),
            most_files: None,
            swept: Cell::new(None),
        };
        Ok((process, parent))
    }

    /// True if no tree was started here for a while, so that the next start looks for trees without a living leash.
    pub(super) fn is_time_to_sweep(&self) -> bool {
        let now = Moment::now();
        let is_due = self.swept.get().is_none_or(|last| now.since(last) >= limits::SWEEP_AGAIN);
        if is_due {
            self.swept.set(Some(now));
        }
        is_due
    }

    /// The signals that have arrived.
    pub(super) fn signals(&self) -> impl Iterator<Item = ReceivedSignal> {
        std::iter::from_fn(|| linux::receive(self.signals.as_fd()))
    }
}

/// Finds the owners and starts the only tree of this process.
fn start(
    process: &SupervisorProcess,
    parent: Parent,
    spec: &Spec,
    places: &Places,
    tell: &mut dyn FnMut(Event),
) -> Result<SupervisedTree, StartFailure> {
    let stdio = ServerStdio::own();
    let owners = owner::find(&spec.owners, parent, stdio.stdin, process.proc.as_ref(), process.inherited)
        .map_err(|owner| StartFailure::Owner { owner })?;
    // Reading the command line took memory that neither this process nor its fork, the keeper, needs again.
    linux::give_back_memory();
    SupervisedTree::start(process, TreeStart { spec, places, stdio, owners, is_shared: false }, tell)
}

/// The descriptors that a supervisor of one tree waits for.
enum RunSource {
    Signals,
    Tree(TreeSource),
}

/// Waits until the tree is over.
fn run(
    process: &SupervisorProcess,
    mut tree: SupervisedTree,
    tell: &mut dyn FnMut(Event),
) -> Result<Receipt, StartFailure> {
    // The host's pipes belong to the host and the server. If we held a copy of stdout, the host would not see its
    // end. We keep stderr to write messages to it.
    spawn::detach_stdin_and_stdout();
    linux::resist_memory_shortage();
    // From here on the supervisor only waits, as long as the server lives.
    linux::give_back_memory();
    loop {
        let ready = wait(process, &tree).unwrap_or_else(|| {
            tree.starve();
            // We still read what we can read without a wait.
            let at_once =
                [RunSource::Tree(TreeSource::Control), RunSource::Signals, RunSource::Tree(TreeSource::Keeper)];
            at_once.map(|source| (source, PollFlags::IN)).into()
        });
        // The keeper's messages first: a signal means something else once the keeper ends the tree.
        tree.handle_messages(tell);
        let mut of_tree = Vec::new();
        for (source, answer) in ready {
            match source {
                RunSource::Signals => process.signals().for_each(|received| tree.handle_signal(received)),
                RunSource::Tree(source) => of_tree.push((source, answer)),
            }
        }
        if let Some(why) = tree.react(process, &of_tree, tell) {
            return tree.finish(process, why, tell);
        }
    }
}

/// Waits until a source is ready. `None` when the kernel lets us poll no descriptor.
fn wait(process: &SupervisorProcess, tree: &SupervisedTree) -> Option<Vec<(RunSource, PollFlags)>> {
    let mut set = PollSet::default();
    set.add(RunSource::Signals, process.signals.as_fd(), PollFlags::IN);
    tree.watch(&mut set, RunSource::Tree);
    let now = Moment::now();
    set.wait(tree.next_look(now).map(|deadline| timeout_until(deadline, now)).as_ref())
}
