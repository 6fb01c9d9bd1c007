//! The supervisor of many trees, for a program that starts many (the gateway). Each tree has a keeper of its own. This one
//! process is the second line behind all of them: the keepers are its children, and it takes a tree over when its keeper
//! is gone.
//!
//! While it takes a tree over, which may need the whole grace, it starts no tree and reports no other end. The keepers of
//! the other trees work on.

use std::collections::HashSet;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::event::PollFlags;
use rustix::process::{Pid, Resource, Rlimit, WaitOptions, getpid, getrlimit, setrlimit};

use super::control::fds;
use super::driver::END_SIGNAL;
use super::failure::failed;
use super::first_look::FirstLook;
use super::handle::Report;
use super::spec::Spec;
use super::supervised::{ServerStdio, SupervisedTree, TreeSource, TreeStart, note_failure};
use super::supervisor::SupervisorProcess;
use super::supervisor_handle::{self, StartRequest, SupervisorRequest};
use crate::ledger::receipts;
use crate::owner::{self, OwnerWatch, Parent};
use crate::places::Places;
use crate::platform::channel;
use crate::platform::linux;
use crate::platform::poll::PollSet;
use leash_model::clock::{Moment, timeout_until};
use leash_model::event::Event;
use leash_model::limits;
use leash_model::owner::Owner;
use leash_model::receipt::{Reason, Receipt};
use leash_model::start_failure::StartFailure;

/// Runs as the supervisor that a program has started, until the program starts no more trees and all are over.
pub(crate) fn run() {
    // Descriptors that the program leaked to us would otherwise stay open as long as it has a tree.
    let Some(requests) = linux::close_inherited_but(fds::CONTROL) else { return };
    let first = FirstLook::take();
    let _ = rustix::thread::set_name(c"supervisor");
    let Ok((mut process, parent)) = SupervisorProcess::new(first) else { return };
    process.most_files = raise_file_limit();
    let idle_since = Moment::now();
    let mut supervisor = SupervisorOfMany {
        process,
        parent,
        requests: Some(requests),
        expects_more: true,
        trees: Vec::new(),
        idle_since,
    };
    while supervisor.expects_more || !supervisor.trees.is_empty() {
        supervisor.turn();
    }
}

/// Lets this process open as many descriptors as it may: it has some for each tree. Returns the limit for servers.
fn raise_file_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).ok().and(current)
}

struct SupervisorOfMany {
    process: SupervisorProcess,
    parent: Parent,
    /// The socket on which the program asks; `None` when it is closed.
    requests: Option<OwnedFd>,
    /// The program may ask for another tree.
    expects_more: bool,
    trees: Vec<HandledTree>,
    /// The time at which the last tree was over. Used while there is none.
    idle_since: Moment,
}

/// A tree, and the handle that the program has of it.
struct HandledTree {
    tree: SupervisedTree,
    handle: OwnedFd,
    spec: Spec,
    places: Places,
}

/// The descriptors that it waits for. A tree is named by its position.
#[derive(Clone, Copy)]
enum SupervisorSource {
    Signals,
    Requests,
    Tree(usize, TreeSource),
}

impl SupervisorOfMany {
    /// Waits for one event or several, and handles them.
    fn turn(&mut self) {
        let (mut signalled, mut requested, mut of_trees) = (false, false, Vec::new());
        match self.wait() {
            Some(ready) => {
                for (source, answer) in ready {
                    match source {
                        SupervisorSource::Signals => signalled = true,
                        SupervisorSource::Requests => requested = true,
                        SupervisorSource::Tree(number, source) => of_trees.push((number, source, answer)),
                    }
                }
            }
            None => {
                (signalled, requested) = (true, true);
                self.trees.iter_mut().for_each(|held| held.tree.starve());
                let looks =
                    |number| [TreeSource::Control, TreeSource::Keeper].map(|source| (number, source, PollFlags::IN));
                of_trees.extend((0..self.trees.len()).flat_map(looks));
            }
        }
        if signalled {
            self.handle_signals();
        }
        self.look_at_trees(&of_trees);
        if requested {
            self.handle_requests();
        }
        if self.trees.is_empty() && Moment::now() >= self.idle_since + limits::SUPERVISOR_IDLE {
            self.retire();
        }
    }

    /// Takes no more requests, except those that the program has sent already.
    fn retire(&mut self) {
        if let Some(requests) = &self.requests {
            let _ = rustix::net::shutdown(requests, rustix::net::Shutdown::Both);
        }
        self.handle_requests();
    }

    fn wait(&self) -> Option<Vec<(SupervisorSource, PollFlags)>> {
        let mut set = PollSet::default();
        set.add(SupervisorSource::Signals, self.process.signals.as_fd(), PollFlags::IN);
        if let Some(requests) = &self.requests {
            set.add(SupervisorSource::Requests, requests.as_fd(), PollFlags::IN);
        }
        for (number, held) in self.trees.iter().enumerate() {
            held.tree.watch(&mut set, |source| SupervisorSource::Tree(number, source));
        }
        let now = Moment::now();
        let idle = self.trees.is_empty().then(|| self.idle_since + limits::SUPERVISOR_IDLE);
        let next = self.trees.iter().filter_map(|held| held.tree.next_look(now)).chain(idle).min();
        set.wait(next.map(|deadline| timeout_until(deadline, now)).as_ref())
    }

    /// A signal that asks a process to end means all trees. `leash end` signals the keepers of shared trees, because this
    /// process would not know which tree such a signal means.
    fn handle_signals(&mut self) {
        let received: Vec<_> = self.process.signals().collect();
        for received in received {
            match received.signal {
                libc::SIGCHLD => self.reap_others(),
                END_SIGNAL if self.expects_more => {}
                _ => self.trees.iter_mut().for_each(|held| held.tree.handle_signal(received)),
            }
        }
    }

    /// Reaps the processes that leash could not end, now that they have ended by themselves.
    fn reap_others(&mut self) {
        let is_there =
            |pid: &i32| matches!(rustix::process::waitpid(Pid::from_raw(*pid), WaitOptions::NOHANG), Ok(None));
        self.process.others.retain(is_there);
    }

    /// Handles what has happened to the trees, and finishes those whose keeper is gone.
    fn look_at_trees(&mut self, ready: &[(usize, TreeSource, PollFlags)]) {
        let mut over: Vec<(usize, Reason)> = Vec::new();
        for (number, held) in self.trees.iter_mut().enumerate() {
            let own = ready.iter().filter(|(of, ..)| *of == number).map(|(_, source, answer)| (*source, *answer));
            let own: Vec<(TreeSource, PollFlags)> = own.collect();
            let why = held.tree.react(&self.process, &own, &mut |event| tell(&held.handle, Report::Event(event)));
            over.extend(why.map(|why| (number, why)));
        }
        // From the last to the first: the numbers of those before it stay.
        for (number, why) in over.into_iter().rev() {
            let held = self.trees.remove(number);
            self.finish(held, why);
        }
    }

    /// Finishes a tree whose keeper is gone, and reports the result.
    fn finish(&mut self, held: HandledTree, why: Reason) {
        let HandledTree { tree, handle, spec, places } = held;
        let left_before = self.process.others.clone();
        self.process.others.extend(self.trees.iter().map(|held| held.tree.keeper()));
        let over = tree.finish(&self.process, why, &mut |event| tell(&handle, Report::Event(event)));
        let is_left = matches!(&over, Ok(receipt) if !receipt.all_gone());
        let left = if is_left { self.children_without_a_tree() } else { HashSet::new() };
        self.process.others = left_before;
        self.process.others.extend(left);
        report(&handle, &spec, &places, over, receipts::append_once);
        self.idle_since = Moment::now();
    }

    /// Children of ours that belong to no tree: leash could not end them, or their keeper died a moment ago.
    fn children_without_a_tree(&self) -> HashSet<i32> {
        let children = self.process.proc.map(|proc| proc.children(getpid().as_raw_pid()).found).unwrap_or_default();
        children.into_iter().filter(|child| !self.process.others.contains(child)).collect()
    }

    /// Does what the program asks for.
    fn handle_requests(&mut self) {
        while let Some(requests) = &self.requests {
            match supervisor_handle::receive(requests.as_fd()) {
                Ok(Some((SupervisorRequest::Start { is_last }, Some(start)))) => {
                    self.expects_more &= !is_last;
                    self.start(start);
                }
                Ok(Some((SupervisorRequest::Hurry { run }, _))) => {
                    let wanted = self.trees.iter_mut().find(|held| held.tree.record.run == run);
                    wanted.into_iter().for_each(|held| held.tree.hurry());
                }
                Ok(Some((SupervisorRequest::Start { .. }, None))) => {}
                Ok(None) => return,
                Err(_) => (self.requests, self.expects_more) = (None, false),
            }
        }
    }

    fn start(&mut self, request: StartRequest) {
        let StartRequest { handle, orders, stdin, stdout, stderr } = request;
        let Some((spec, places)) = channel::read_memfd::<(Spec, Places)>(orders) else { return };
        let stdio = ServerStdio { stdin: stdin.as_fd(), stdout: stdout.as_fd(), stderr: stderr.as_fd() };
        let owners = self.owners(&spec, &handle, &stdio);
        let started = owners.and_then(|owners| {
            let start = TreeStart { spec: &spec, places: &places, stdio, owners, is_shared: self.expects_more };
            SupervisedTree::start(&self.process, start, &mut |event| tell(&handle, Report::Event(event)))
        });
        match started {
            Ok(tree) => self.trees.push(HandledTree { tree, handle, spec, places }),
            Err(failure) => report(&handle, &spec, &places, Err(failure), receipts::append),
        }
    }

    /// The owners of a new tree: those that the specification names, and the handle.
    fn owners(&self, spec: &Spec, handle: &OwnedFd, stdio: &ServerStdio<'_>) -> Result<Vec<OwnerWatch>, StartFailure> {
        let process = &self.process;
        let no_descriptor = |errno| failed("cannot watch the program", errno);
        let parent = self.parent.copy().map_err(no_descriptor)?;
        let mut owners = owner::find(&spec.owners, parent, stdio.stdin, process.proc.as_ref(), process.inherited)
            .map_err(|owner| StartFailure::Owner { owner })?;
        let watched = rustix::io::fcntl_dupfd_cloexec(handle, 3).map_err(no_descriptor)?;
        owners.push(OwnerWatch::new(Owner::Handle, watched));
        Ok(owners)
    }
}

fn tell(handle: &OwnedFd, report: Report) {
    channel::send(handle.as_fd(), &report);
}

/// Reports the result of a tree, and writes the receipt of one that never ran.
fn report(
    handle: &OwnedFd,
    spec: &Spec,
    places: &Places,
    over: Result<Receipt, StartFailure>,
    write: fn(&std::path::Path, &Receipt) -> std::io::Result<()>,
) {
    match over {
        Ok(receipt) => tell(handle, Report::Over(Box::new(receipt))),
        Err(failure) => {
            note_failure(spec, places, &failure, write, &mut |event: Event| tell(handle, Report::Event(event)));
            tell(handle, Report::Failed(failure));
        }
    }
}
