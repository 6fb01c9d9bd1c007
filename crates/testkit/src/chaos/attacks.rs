//! What a program of the same user does to those who look after a tree: it kills both and starves the next one, traces one of them, or
//! stops both. And clients that are gone before anybody has looked who they are.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Resource, Signal};

use super::action::{Blow, Origin, Part, Route, Server};
use super::actor::descendants;
use super::world::{World, session_of};
use crate::lines::Lines;
use crate::process::{self, Handle, Process};
use crate::sys::{self, Step};
use crate::wait;

/// How long clients are waited for that the gateway may never answer.
const VISIT: Duration = Duration::from_secs(3);

/// Somebody who traces a keeper. It lets go when dropped.
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
    /// One of the two who look after an actor's tree: leash itself, or the supervisor in front of a gateway's tree, and the keeper.
    pub(crate) fn tree_part(&mut self, actor: u32, part: Part) -> Option<Handle> {
        if !self.has_tree(actor) {
            return None;
        }
        let is_direct = self.actors.get(&actor).is_some_and(|actor| actor.start.route == Route::Run);
        let part = if part == Part::Leash && !is_direct { Part::Supervisor } else { part };
        self.part((actor, part))
    }

    /// Kills both who look after a tree, and starts a leash that has hardly anything to find out what they left.
    pub(crate) fn starve(&mut self, actor: u32, most: Option<u64>) -> String {
        self.look();
        let (Some(leash), Some(keeper)) = (self.tree_part(actor, Part::Leash), self.tree_part(actor, Part::Keeper))
        else {
            return "nobody".to_owned();
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
        // What this start forgets was known once.
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

    /// A run of something that leaves at once. It may fail, but not hang.
    fn starved_start(&mut self, most: Option<u64>) -> String {
        let server = [self.scene.zoo_path().into_os_string(), "exit".into(), "0".into()];
        let words = self.scene.run_words(["--contain", &self.plan.hold.to_string()], &server);
        let mut command = match most {
            Some(_) => self.scene.command(&words[0]),
            // An empty file system in the place of all cgroups; an ordinary user needs a user namespace for that.
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

    /// Runs a command of leash to its end, and says with which code; one that hangs is wrong.
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
        let Some(keeper) = self.tree_part(actor, Part::Keeper) else { return "nobody".to_owned() };
        let Some(process) = Process::read(keeper.pid()) else { return "nobody".to_owned() };
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
        // It stops at every signal then, and only its tracer can have it go on.
        let _ = keeper.signal(Signal::STOP);
        self.stopped.push(keeper);
        format!("keeper {pid}")
    }

    /// Lets go of keepers that nobody else could do the work of: their leash was killed, or had too little of something.
    pub(crate) fn let_go(&mut self) {
        let trees = &self.trees;
        let is_alone = |session: &String| trees.get(session).is_some_and(|harm| harm.leash || harm.short);
        self.tracers.retain(|tracer| !tracer.sessions.iter().any(is_alone));
    }

    /// Stops both who look after a tree, and has `leash end --force` end it.
    pub(crate) fn force(&mut self, actor: u32) -> String {
        self.look();
        let is_direct = self.actors.get(&actor).is_some_and(|actor| actor.start.route == Route::Run);
        let (Some(leash), Some(keeper), true) =
            (self.tree_part(actor, Part::Leash), self.tree_part(actor, Part::Keeper), is_direct)
        else {
            return "nobody".to_owned();
        };
        let Some(session) = descendants(keeper.pid()).iter().find_map(session_of) else {
            return "no session".to_owned();
        };
        // Both are killed by leash now, or it has not done what it was asked for.
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

    /// Whatever the ledger knew of a session that was ended by force is gone, and told of.
    fn check_forced(&mut self, session: &str, came: &str) {
        let survivors = self.survivors(&self.known).into_iter();
        let mut survivors = survivors.filter(|one| one.session.as_deref() == Some(session));
        // What nobody knew of is left, and the code says so.
        if let Some(one) = survivors.find(|one| one.recorded || came.ends_with(" 0")) {
            let shown = one.shown.clone();
            self.wrong.push(format!("`leash end --force` ended with {came}, and there is {shown}"));
        }
        if !self.receipts().iter().any(|receipt| receipt["session"] == *session) {
            self.wrong.push(format!("`leash end --force` ended with {came}, and there is no receipt of {session}"));
        }
    }

    /// Clients that leave as soon as they have said all: every second one by SIGKILL.
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
        // A gateway that is stopped, or has no descriptor, answers later. If it is killed then, nobody was told of their sessions.
        if is_upstream {
            self.wounds(&self.gateway_name()).doubts += late;
        }
        self.tally.faults.add("clients that left at once");
        format!("{} of {clients} were answered", visitors.len() - late)
    }

    /// The first process of a PID namespace that has nothing to do with leash, for servers that have a child there.
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

    /// Has a process nothing to do with leash: it may be there at the end.
    fn excuse(&mut self, pid: Pid) {
        self.innocent.extend(Process::read(pid).map(|process| (process.pid, process.start)));
    }

    /// Whether a process is in the foreign namespace.
    pub(crate) fn is_foreign(&self, pid: Pid) -> bool {
        self.namespace.as_ref().is_some_and(|foreign| namespace_of(pid).is_some_and(|id| id == foreign.id))
    }

    fn leash_part(&self, actor: u32) -> Part {
        let is_direct = self.actors.get(&actor).is_some_and(|actor| actor.start.route == Route::Run);
        if is_direct { Part::Leash } else { Part::Supervisor }
    }
}

/// A PID namespace that leash has not made.
#[derive(Debug)]
pub(crate) struct Namespace {
    /// Its first process.
    pub(crate) first: Pid,
    id: std::path::PathBuf,
}

fn namespace_of(pid: Pid) -> Option<std::path::PathBuf> {
    std::fs::read_link(format!("/proc/{}/ns/pid", pid.as_raw_nonzero())).ok()
}
