//! The keeper: the small process between the supervisor and the server. It ends the tree even if the supervisor is
//! killed. It is a fork of the supervisor and shares the memory that neither of them changes. It has one thread, its own
//! session, and a command line without the tool's name, so that `pkill -9 -f leash` does not kill both.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{CStr, OsStr, OsString};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getpid, getppid, getrlimit, setrlimit};

use super::contained_tree::ContainedTree;
use super::control::{CommandLine, KeeperReport, Orders, fds};
use super::driver::{END_SIGNAL, SupervisorLink, TreeDriver, TreeDriverParts};
use super::failure::failed;
use super::stderr_copy::{StderrCopy, StderrPipe};
use super::supervisor_handle::SUPERVISOR;
use super::supervisor_of_many;
use crate::contain::caps::CapSetting;
use crate::contain::leaf::{self, Leaf};
use crate::contain::slice::BudgetSlice;
use crate::contain::unit::Watched;
use crate::contain::{Situation, candidates, sealed, unit};
use crate::ledger::store::{LockedRun, Store};
use crate::owner::OwnerWatch;
use crate::platform::channel;
use crate::platform::identity::{self, HeldProcess};
use crate::platform::linux::{self, CloneInto, InheritedSignals};
use crate::platform::proc::Proc;
use crate::platform::spawn::{self, Program, SpawnError, SpawnStep, c_string};
use leash_model::clock::Moment;
use leash_model::containment::{Containment, Refusal};
use leash_model::error::{Cause, shown};
use leash_model::record::Phase;
use leash_model::start_failure::StartFailure;

/// The command line of a keeper, in `ps`.
const KEEPER: &[u8] = b"mcp-keeper";

/// Signals that a keeper reads or ignores. None of them may end it.
pub const SIGNALS: [i32; 11] = [
    libc::SIGCHLD,
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGALRM,
    libc::SIGPIPE,
    END_SIGNAL,
    libc::SIGUSR2,
    libc::SIGTSTP,
    libc::SIGTTOU,
];

/// Runs as a keeper, in a process that its supervisor has just forked. Returns when the tree is over, or when none could be
/// started.
pub(crate) fn run(orders: Orders, command: CommandLine) {
    if let Some(keeper) = Keeper::prepare(orders, command) {
        keeper.start_and_keep();
    }
}

struct Keeper {
    orders: Orders,
    command: CommandLine,
    supervisor: SupervisorLink,
    signals: OwnedFd,
    watches: Vec<OwnerWatch>,
    locked_run: LockedRun,
    proc: Option<Proc>,
    stderr: Option<StderrPipe>,
}

impl Keeper {
    /// Takes the inherited descriptors. `None` if the supervisor is already gone: then the keeper starts nothing.
    fn prepare(orders: Orders, command: CommandLine) -> Option<Keeper> {
        linux::survive_file_size_limit();
        if let Some(most) = orders.most_files {
            let limit = getrlimit(Resource::Nofile);
            let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit });
        }
        // The names that `ps` and `top` show.
        let _ = rustix::thread::set_name(c"keeper");
        linux::set_command_line(KEEPER);
        let control = linux::inherited_fd(fds::CONTROL).ok()?;
        let lock = linux::inherited_fd(fds::LOCK).ok()?;
        let pidfd = linux::inherited_fd(fds::SUPERVISOR).ok()?;
        let mut watches = Vec::new();
        for (owner, fd) in orders.record.owners.iter().zip(fds::OWNERS..) {
            watches.push(OwnerWatch::new(owner.clone(), linux::inherited_fd(fd).ok()?));
        }
        let mut next = fds::OWNERS + watches.len() as i32;
        let mut stderr = None;
        if orders.copies_stderr {
            let (reader, host) = (linux::inherited_fd(next).ok()?, linux::inherited_fd(next + 1).ok()?);
            (stderr, next) = (Some(StderrPipe { reader, host }), next + 2);
        }
        // Close the descriptors that the host leaked to leash. A copy here would keep them open for the life of the
        // tree. Done before we open any descriptor ourselves, because ours would be above this number too.
        linux::close_from(next);
        let signals = linux::listen(&SIGNALS).ok()?;
        // Checked after we hold the supervisor's pidfd: from here on its death wakes us.
        if getppid().map(|pid| pid.as_raw_pid()) != orders.record.supervisor.map(|id| id.pid) {
            return None;
        }
        // Leave the host's session: the supervisor handles its terminal and its group signals.
        let _ = rustix::process::setsid();
        rustix::process::set_child_subreaper(Some(getpid())).ok()?;
        let locked_run = Store::inherit(&orders.runtime_dir, &orders.record.run, lock);
        let proc = Proc::own().ok();
        Some(Keeper {
            orders,
            command,
            supervisor: SupervisorLink { control, pidfd },
            signals,
            watches,
            locked_run,
            proc,
            stderr,
        })
    }

    fn start_and_keep(mut self) {
        self.orders.record.keeper = self.proc.as_ref().and_then(identity::current);
        match self.start() {
            Ok(tree) => self.keep(tree),
            Err(failure) => {
                channel::send(self.supervisor.control.as_fd(), &KeeperReport::Failed(failure));
                self.locked_run.remove();
            }
        }
    }

    /// Tries the containments, best first, until the server runs in one.
    fn start(&mut self) -> Result<ContainedTree, StartFailure> {
        // The record names the keeper before the server exists. A server that stops or kills us at once can't prevent
        // that another process of leash finds us.
        self.locked_run.write(&self.orders.record)?;
        let situation = Situation {
            own_proc: self.proc.is_some(),
            pid_one: self.orders.pid_one,
            spares: !self.orders.record.spare.is_empty(),
            caps: self.orders.caps.any(),
            slices: self.orders.budgets.any(),
        };
        let (order, mut refused) = candidates(self.orders.wish, situation);
        let program = self.program();
        for containment in order {
            match self.attempt(containment, &program) {
                Ok(tree) => {
                    refused.retain(|refusal| refusal.containment > containment);
                    self.orders.record.refused = refused;
                    return Ok(tree);
                }
                Err(AttemptError::Refused(why)) => refused.push(Refusal::new(containment, why)),
                Err(AttemptError::Failed(failure)) => return Err(failure),
            }
        }
        if let Some(exactly) = self.orders.wish.exactly {
            // The caller asked for one containment, so the refusals of the others say nothing.
            refused.retain(|refusal| refusal.containment == exactly);
        }
        refused.sort_by_key(|refusal| std::cmp::Reverse(refusal.containment));
        Err(StartFailure::Contain { refused })
    }

    fn program(&self) -> Program {
        let mut env: BTreeMap<OsString, OsString> = env::vars_os().collect();
        for (key, value) in &self.orders.env {
            match value {
                Some(value) => env.insert(key.clone(), value.clone()),
                None => env.remove(key),
            };
        }
        let variable = |(key, value): (OsString, OsString)| {
            let mut text = key;
            text.push("=");
            text.push(value);
            c_string(&text)
        };
        Program {
            path: c_string(&self.command.path),
            argv: self.command.argv.iter().map(|argument| c_string(argument)).collect(),
            env: env.into_iter().map(variable).collect(),
            cwd: self.command.cwd.as_ref().map(|cwd| c_string(cwd)),
            signals: InheritedSignals::from_bits(self.orders.ignored_signals),
        }
    }

    /// Starts the server in one containment.
    fn attempt(&mut self, containment: Containment, program: &Program) -> Result<ContainedTree, AttemptError> {
        let mut tree =
            ContainedTree::new(containment, self.proc, self.orders.record.spare.clone(), self.orders.pid_one);
        match containment {
            // The first process of a container already has a PID namespace, and its own death ends it.
            Containment::Sealed if !self.orders.pid_one => {
                let sealed = sealed::spawn(program, self.proc.as_ref()).map_err(|error| {
                    sealed::explain(error).map_or_else(|| failure(program, error), AttemptError::Refused)
                })?;
                tree.leader = sealed.leader;
                tree.sealed = Some(sealed);
            }
            Containment::Unit => {
                let (dir, slices) = self.enter_unit()?;
                tree.slices = slices;
                // The scope is ours, so the kernel may count for us. Without its counts only the receipt says less.
                leaf::count_memory(&dir);
                self.plan_leaf(&dir)?;
                self.spawn_in_leaf(&mut tree, program)?;
            }
            Containment::Leaf => self.spawn_in_leaf(&mut tree, program)?,
            Containment::Sealed | Containment::Reaper | Containment::Group => {
                tree.leader =
                    Some(spawn::spawn(program, CloneInto::default()).map_err(|error| failure(program, error))?);
            }
        }
        Ok(tree)
    }

    fn enter_unit(&self) -> Result<(std::path::PathBuf, Vec<BudgetSlice>), AttemptError> {
        let record = &self.orders.record;
        let (supervisor, keeper) = record
            .supervisor
            .zip(record.keeper)
            .ok_or_else(|| AttemptError::Refused("/proc does not show this PID namespace".to_owned()))?;
        let slices = self.orders.budgets.slices(&record.session).map_err(AttemptError::Refused)?;
        let watched = Watched { supervisor, keeper };
        unit::enter(&self.orders.bus, &record.run, watched, &slices).map_err(AttemptError::Refused)
    }

    /// Writes the path of a leaf to the ledger before the leaf exists, so that a sweep finds the leaf however soon we
    /// die.
    fn plan_leaf(&mut self, dir: &std::path::Path) -> Result<(), AttemptError> {
        self.orders.record.leaf = Some(dir.to_owned());
        self.locked_run.write(&self.orders.record).map_err(|error| AttemptError::Failed(error.into()))
    }

    fn spawn_in_leaf(&self, tree: &mut ContainedTree, program: &Program) -> Result<(), AttemptError> {
        let dir = self.orders.record.leaf.as_deref().ok_or_else(|| AttemptError::Refused("no cgroup2".to_owned()))?;
        let mut settings = self.orders.caps.settings();
        // The kernel may also kill a process of it because of a budget that it shares with other trees.
        if self.orders.caps.memory.is_none() && tree.slices.iter().any(BudgetSlice::has_memory_budget) {
            settings.push(CapSetting::END_TOGETHER);
        }
        let leaf = Leaf::create(dir, &settings).map_err(AttemptError::Refused)?;
        match spawn::spawn(program, CloneInto { namespaces: 0, cgroup: Some(leaf.as_cgroup()) }) {
            Ok(pid) => {
                tree.leader = Some(pid);
                tree.leaf = Some(leaf);
                Ok(())
            }
            Err(error) => {
                leaf.remove();
                Err(match error {
                    SpawnError::Clone(errno) if !matches!(errno, Errno::AGAIN | Errno::NOMEM) => {
                        AttemptError::Refused(format!("starting a process in {}: {errno}", dir.display()))
                    }
                    error => failure(program, error),
                })
            }
        }
    }

    /// Watches the running tree until its end.
    fn keep(mut self, tree: ContainedTree) {
        // From here on only the host and the server hold the host's pipes.
        spawn::detach_stdio();
        linux::resist_memory_shortage();
        linux::give_back_memory();
        let record = &mut self.orders.record;
        record.containment = Some(tree.containment);
        record.leader = self
            .proc
            .as_ref()
            .zip(tree.leader)
            .and_then(|(proc, pid)| HeldProcess::open(proc, pid))
            .map(|held| held.id);
        record.phase = Phase::Running;
        record.members = record.leader.into_iter().collect();
        if tree.leaf.is_none() {
            record.leaf = None;
        }
        let written = self.locked_run.write(record);
        let stderr = self.stderr.map(|pipe| StderrCopy::new(pipe, &self.orders.record));
        let expires = self.orders.max_age_ms.map(|ms| Moment::now() + Duration::from_millis(ms));
        let guarded = TreeDriverParts {
            tree,
            grace: Duration::from_millis(self.orders.record.grace_ms),
            record: self.orders.record,
            locked_run: self.locked_run,
            watches: self.watches,
            signals: Rc::new(self.signals),
            stderr,
        };
        let driver = TreeDriver::of_keeper(guarded, self.supervisor, expires);
        if let Err(error) = written {
            driver.tell(&KeeperReport::Warning(format!("the ledger is not up to date: {error}")));
        }
        driver.tell(&KeeperReport::Started {
            leader: driver.tree.leader,
            containment: driver.tree.containment,
            refused: driver.record.refused.clone(),
        });
        // The keeper has told the supervisor, if there is one, which processes are left and what could not be written.
        // The receipt says so too.
        let _ = driver.run(None);
    }
}

/// The reason why a server does not run in a containment.
enum AttemptError {
    /// The containment does not work here; the keeper tries the next one.
    Refused(String),
    /// No containment will work.
    Failed(StartFailure),
}

/// The failure of a start, in any containment.
fn failure(program: &Program, error: SpawnError) -> AttemptError {
    let text = |text: &CStr| shown(OsStr::from_bytes(text.to_bytes()));
    AttemptError::Failed(match error {
        SpawnError::At(SpawnStep::Chdir, errno) => {
            let dir = text(program.cwd.as_deref().unwrap_or_default());
            StartFailure::WorkingDirectory { dir, cause: Cause::new(errno) }
        }
        SpawnError::At(SpawnStep::Exec, errno) => {
            StartFailure::Exec { path: text(&program.path), cause: Cause::new(errno) }
        }
        SpawnError::Clone(errno) | SpawnError::Pipe(errno) | SpawnError::At(SpawnStep::Fork, errno) => {
            failed("cannot start a process", errno)
        }
        SpawnError::At(stage, errno) => failed(&format!("the server's process stopped at {stage:?}"), errno),
    })
}

/// A process that leash starts by executing its own program again, with `name` as `argv[0]`.
#[derive(Clone, Copy, Debug)]
pub struct EntryPoint {
    /// Its `argv[0]`.
    pub name: &'static str,
    /// Runs the process to its end, with the arguments after `argv[0]`.
    pub run: fn(Vec<OsString>),
}

/// The processes of a tree.
const OF_A_TREE: [EntryPoint; 2] = [
    EntryPoint { name: SUPERVISOR, run: |_| supervisor_of_many::run() },
    EntryPoint { name: unit::GUARD, run: |arguments| unit::guard(&arguments) },
];

/// Runs this process as one of leash's own if it was executed as one, and returns true then. `others` are processes that other
/// crates start. A program may have any arguments of its own, so the first one must match exactly.
pub fn enter(others: &[EntryPoint]) -> bool {
    let mut arguments = env::args_os();
    let Some(first) = arguments.next() else { return false };
    let is_it = |locked_run: &&EntryPoint| first.as_bytes() == locked_run.name.as_bytes();
    match OF_A_TREE.iter().chain(others).find(is_it) {
        Some(locked_run) => {
            (locked_run.run)(arguments.collect());
            true
        }
        None => false,
    }
}
