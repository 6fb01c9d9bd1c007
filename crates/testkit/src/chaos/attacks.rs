//! Attacks by a program of the same user on the supervisor and the keeper of a tree: it kills both and starves the next
//! leash, traces one of them, or stops both. Also: clients that exit before leash has looked up their processes.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Resource, Signal};

use super::action::{Blow, Origin, Part, Route, Server};
use super::actor::descendants;
use super::promise::{Survivor, may_stay};
use super::world::{World, session_of};
use crate::lines::Lines;
use crate::process::{self, Handle, Process};
use crate::sys::{self, Step};
use crate::wait;

/// The timeout for clients that the gateway may never answer.
const VISIT: Duration = Duration::from_secs(3);

/// A process that traces a keeper. Dropping it detaches the keeper.
#[derive(Debug)]
pub(crate) struct Tracer {
    child: Child,
    /// The trees of the keeper.
    sessions: Vec<String>,
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl World {
    /// The supervisor or the keeper of an actor's tree. The supervisor is leash itself, or the one in front of a
    /// gateway's tree.
    pub(crate) fn tree_part(&mut self, actor: u32, part: Part) -> Option<Handle> {
        if !self.has_tree(actor) {
            return None;
        }
        let is_direct = self.actors.get(&actor).is_some_and(|actor| actor.start.route == Route::Run);
        let part = if part == Part::Leash && !is_direct { Part::Supervisor } else { part };
        self.part((actor, part))
    }

    /// Kills supervisor and keeper of a tree, and starts a leash with very few resources, which has to clean up after
    /// them.
    pub(crate) fn starve(&mut self, actor: u32, most: Option<u64>) -> String {
        self.look();
        let (Some(leash), Some(keeper)) = (self.tree_part(actor, Part::Leash), self.tree_part(actor, Part::Keeper))
        else {
            return "no such process".to_owned();
        };
        let session = descendants(keeper.pid()).iter().find_map(session_of);
        self.hit(Blow::Kill, (actor, self.leash_part(actor)), leash.pid());
        self.hit(Blow::Kill, (actor, Part::Keeper), keeper.pid());
        // The keeper first: a supervisor would replace it.
        let killed = [&keeper, &leash].map(|one| one.signal(Signal::KILL).is_ok() && one.wait_gone(wait::LIMIT));
        if killed != [true, true] {
            return "they stay".to_owned();
        }
        self.tally.faults.add(match most {
            Some(_) => "start with few descriptors after both were killed",
            None => "start without cgroups after both were killed",
        });
        // The members are noted before this start, which may drop the record.
        self.known.extend(self.recorded());
        let record = session.as_deref().and_then(|session| self.record_of(session));
        let code = self.starved_start(most);
        if let (Some(session), Some((path, _))) = (session, record)
            && !path.exists()
            && !self.receipts().iter().any(|receipt| receipt["session"] == *session)
            && !self.disk_is_bad()
        {
            self.wrong.push(format!("the record of {session} is gone, and there is no receipt"));
        }
        code
    }

    /// Runs leash with a server that exits at once. The run may fail, but must not hang.
    fn starved_start(&mut self, most: Option<u64>) -> String {
        let server = [self.scene.zoo_path().into_os_string(), "exit".into(), "0".into()];
        let words = self.scene.run_words(["--contain", &self.plan.hold.to_string()], &server);
        let mut command = match most {
            Some(_) => self.scene.command(&words[0]),
            // Mounts an empty file system over all cgroups. An ordinary user needs a user namespace for that.
            None => {
                let user = (!self.scene.user().is_root()).then_some("--user");
                let mut command = self.scene.zoo(["ns"].into_iter().chain(user));
                command.args(["--tmpfs", "/sys/fs/cgroup", "--"]).arg(&words[0]);
                command
            }
        };
        command.args(&words[1..]);
        sys::prepare(&mut command, most.map(|most| Step::Limit(Resource::Nofile, most)).into_iter().collect());
        self.finished(command, "a start of leash with little")
    }

    /// Runs a command of leash to its end, and returns its exit code as text. A command that hangs is a complaint.
    fn finished(&mut self, mut command: Command, name: &str) -> String {
        command.stdout(Stdio::null()).stderr(self.scene.stderr_file());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return format!("not started: {error}"),
        };
        match wait::within(wait::LIMIT, || child.try_wait().ok().flatten()) {
            Some(status) => status.to_string(),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                self.wrong.push(format!("{name} hangs"));
                "it hangs".to_owned()
            }
        }
    }

    /// Has the keeper of a tree traced and stopped until the end of the episode.
    pub(crate) fn trace(&mut self, actor: u32) -> String {
        let Some(keeper) = self.tree_part(actor, Part::Keeper) else { return "no such process".to_owned() };
        let Some(process) = Process::read(keeper.pid()) else { return "no such process".to_owned() };
        let sessions = descendants(keeper.pid()).iter().filter_map(session_of).collect();
        let (pid, start) = (process.pid.as_raw_nonzero().to_string(), process.start.to_string());
        let mut command = self.scene.zoo(["trace", &pid, &start]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return format!("no tracer: {error}"),
        };
        self.excuse(Pid::from_child(&child));
        let says = child.stdout.take().map(Lines::new);
        let mut tracer = Tracer { child, sessions };
        if says.and_then(|mut says| says.next(wait::LIMIT)).as_deref() != Some("traced") {
            let _ = tracer.child.kill();
            return "refused".to_owned();
        }
        self.tracers.push(tracer);
        self.tally.faults.add("keeper traced");
        // A traced keeper stops at every signal, and only its tracer can let it continue.
        let _ = keeper.signal(Signal::STOP);
        self.stopped.push(keeper);
        format!("keeper {pid}")
    }

    /// Detaches the keepers whose work no other process can do: their leash was killed, or was short of a resource.
    pub(crate) fn let_go(&mut self) {
        let trees = &self.trees;
        let is_alone = |session: &String| trees.get(session).is_some_and(|harm| harm.leash || harm.short);
        self.tracers.retain(|tracer| !tracer.sessions.iter().any(is_alone));
    }

    /// Stops supervisor and keeper of a tree, and ends the tree with `leash end --force`.
    pub(crate) fn force(&mut self, actor: u32) -> String {
        self.look();
        let is_direct = self.actors.get(&actor).is_some_and(|actor| actor.start.route == Route::Run);
        let (Some(leash), Some(keeper), true) =
            (self.tree_part(actor, Part::Leash), self.tree_part(actor, Part::Keeper), is_direct)
        else {
            return "no such process".to_owned();
        };
        let Some(session) = descendants(keeper.pid()).iter().find_map(session_of) else {
            return "no session".to_owned();
        };
        // leash now kills both, or it has not done what it was asked for.
        self.hit(Blow::Kill, (actor, Part::Leash), leash.pid());
        self.hit(Blow::Kill, (actor, Part::Keeper), keeper.pid());
        for one in [leash, keeper] {
            let _ = one.signal(Signal::STOP);
            self.stopped.push(one);
        }
        self.known.extend(self.recorded());
        self.tally.faults.add("both stopped, and leash end --force");
        let command = self.scene.leash(["end", "--force", &session]);
        let came = self.finished(command, "`leash end --force`");
        if !self.disk_is_bad() {
            self.check_forced(&session, &came);
        }
        format!("{session} {came}")
    }

    /// Checks that every process that the ledger knew of a session is gone after `leash end --force`, and is in the
    /// receipt.
    fn check_forced(&mut self, session: &str, came: &str) {
        let survivors = self.survivors(&self.known).into_iter();
        let mut survivors = survivors.filter(|one| one.session.as_deref() == Some(session));
        // A process that the ledger did not know may be left, and then the exit code must say so. So may one in a foreign
        // namespace if the receipt says so: a supervisor in the place of a keeper that did not answer cannot prove whose it is.
        let receipts = self.receipts();
        let may_be_left = |one: &Survivor| !came.ends_with(" 0") && (!one.recorded || may_stay(one, &receipts));
        if let Some(one) = survivors.find(|one| !may_be_left(one)) {
            let shown = one.shown.clone();
            self.wrong.push(format!("`leash end --force` ended with {came}, and there is {shown}"));
        }
        if !receipts.iter().any(|receipt| receipt["session"] == *session) {
            self.wrong.push(format!("`leash end --force` ended with {came}, and there is no receipt of {session}"));
        }
    }

    /// Starts clients that exit as soon as they have sent everything. Every second one is killed by SIGKILL.
    pub(crate) fn visit(&mut self, route: Route, server: Server, origin: Origin, clients: u64) -> String {
        let (name, is_upstream) = match route {
            Route::ServeHttp => (origin.to_string(), true),
            _ => (server.to_string(), false),
        };
        let Some(url) = self.serve.as_ref().map(|serve| serve.url(&name)) else { return "no gateway".to_owned() };
        let mut visitors = Vec::new();
        for number in 0..clients {
            let mut command = self.scene.zoo(["http-client", if number % 2 == 0 { "leave" } else { "die" }, &url]);
            visitors.extend(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn());
        }
        let mut waiting: Vec<&mut Child> = visitors.iter_mut().collect();
        wait::within(VISIT, || {
            waiting.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
            waiting.is_empty().then_some(())
        });
        let late = waiting.len();
        for child in &mut visitors {
            let _ = child.kill();
            let _ = child.wait();
        }
        // A gateway that is stopped, or has no descriptor, answers later. If it is killed before that, no client learns
        // the ids of these sessions.
        if is_upstream {
            self.wounds(&self.gateway_name()).doubts += late;
        }
        self.tally.faults.add("clients that left at once");
        format!("{} of {clients} were answered", visitors.len() - late)
    }

    /// Starts the first process of a PID namespace that has nothing to do with leash. Servers start children in it.
    pub(crate) fn start_namespace(&mut self) -> Result<(), String> {
        let user = if self.scene.user().is_root() { "--pid" } else { "--user" };
        let mut command = self.scene.zoo(["ns", "--pid", user, "--init", "--"]);
        command.arg(self.scene.zoo_path()).arg("idle").stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| error.to_string())?;
        let outside = Pid::from_child(&child);
        let handle = Handle::open(outside, |_| true).ok_or("no namespace")?;
        self.bystanders.push(("the first process of a namespace".to_owned(), child, handle));
        let inside = wait::within(wait::LIMIT, || {
            let first = process::children(outside).pop()?;
            let idle = process::children(first.pid).pop().filter(|idle| idle.command_line().ends_with("idle"))?;
            Some((first.pid, idle.pid))
        });
        let (first, idle) = inside.ok_or("no namespace")?;
        [outside, first, idle].into_iter().for_each(|pid| self.excuse(pid));
        self.namespace = Some(Namespace { first, id: namespace_of(first).ok_or("no namespace")? });
        Ok(())
    }

    /// Notes a process that has nothing to do with leash: it may live at the end.
    fn excuse(&mut self, pid: Pid) {
        self.innocent.extend(Process::read(pid).map(|process| (process.pid, process.start)));
    }

    /// True if a process is in the foreign namespace.
    pub(crate) fn is_foreign(&self, pid: Pid) -> bool {
        self.namespace.as_ref().is_some_and(|foreign| namespace_of(pid).is_some_and(|id| id == foreign.id))
    }

    fn leash_part(&self, actor: u32) -> Part {
        let is_direct = self.actors.get(&actor).is_some_and(|actor| actor.start.route == Route::Run);
        if is_direct { Part::Leash } else { Part::Supervisor }
    }
}

/// A PID namespace that leash did not make.
#[derive(Debug)]
pub(crate) struct Namespace {
    /// Its first process.
    pub(crate) first: Pid,
    id: std::path::PathBuf,
}

fn namespace_of(pid: Pid) -> Option<std::path::PathBuf> {
    std::fs::read_link(format!("/proc/{}/ns/pid", pid.as_raw_nonzero())).ok()
}
