//! The world of one episode, and everything that is done in it.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Resource, Signal};

use super::action::{Action, Blow, Driver, Origin, Part, Route, Scarce, Server, Start};
use super::actor::{Actor, descendants};
use super::disk::SmallDisk;
use super::origin::Upstream;
use super::plan::{Hold, Plan};
use super::promise::Harm;
use crate::census::Census;
use crate::cgroup::Outer;
use crate::client::{Mode, Order, Sdk, Target};
use crate::deps::Deps;
use crate::gateway::Gateway;
use crate::host::{Channel, Manner};
use crate::process::{Handle, Process};
use crate::scene::Scene;
use crate::sys::{self, Step};
use crate::wait::{self, Stopwatch};

/// All that there is in an episode. Dropped in this order: first those who use things, then the things.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) actors: BTreeMap<u32, Actor>,
    pub(crate) serve: Option<Gateway>,
    /// Where it listens.
    listen: String,
    /// Whether that gateway was struck: then it may end in any way.
    pub(crate) serve_was_struck: bool,
    /// Somebody who lives on, untouched, with the same ledger.
    pub(crate) resident: Actor,
    pub(crate) bystanders: Vec<(String, Child, Handle)>,
    /// Who was there before anything happened: number and start time.
    pub(crate) innocent: HashSet<(Pid, u64)>,
    pub(crate) upstreams: BTreeMap<&'static str, (Origin, Upstream)>,
    deps: Option<Deps>,
    stopped: Vec<Handle>,
    pub(crate) trees: BTreeMap<String, Harm>,
    pub(crate) doubts: usize,
    pub(crate) was_away: bool,
    /// When it began.
    watch: Stopwatch,
    /// What was done and what came of it, for people.
    pub(crate) history: Vec<String>,
    disk: Option<SmallDisk>,
    /// The census of the resident, who is not to be counted.
    pub(crate) other_census: Census,
    pub(crate) scene: Scene,
}

impl World {
    pub(crate) fn set(plan: &Plan, scene: Scene) -> Result<Self, String> {
        let disk = match plan.needs_disk() {
            true => {
                Some(SmallDisk::mount(&scene.runtime_dir(), scene.user().uid()).map_err(|error| error.to_string())?)
            }
            false => None,
        };
        let other_census = Census::create(scene.dir().join("census-of-the-resident"));
        let resident = resident(&scene, plan.hold)?;
        let bystanders: Vec<(String, Child, Handle)> = [("in our session", false), ("in its own session", true)]
            .into_iter()
            .map(|(name, apart)| bystander(&scene, name, apart))
            .collect::<Result<_, _>>()?;
        let mut innocent = scene.outer().map(Outer::processes).unwrap_or_default();
        // These may still be on their way into the cgroup.
        innocent.extend(bystanders.iter().filter_map(|(_, _, handle)| Process::read(handle.pid())));
        let innocent = innocent.iter().map(|one| (one.pid, one.start)).collect();
        let upstreams = [("honest", Origin::Honest), ("refuses-delete", Origin::Keeper)]
            .map(|(name, origin)| (name, (origin, Upstream::start(origin))));
        let mut world = Self {
            plan: plan.clone(),
            actors: BTreeMap::new(),
            serve: None,
            listen: "127.0.0.1:0".to_owned(),
            serve_was_struck: false,
            resident,
            bystanders,
            innocent,
            upstreams: upstreams.into(),
            deps: Deps::find().ok(),
            stopped: Vec::new(),
            trees: BTreeMap::new(),
            doubts: 0,
            was_away: false,
            watch: Stopwatch::start(),
            history: Vec::new(),
            disk,
            other_census,
            scene,
        };
        if plan.needs_serve() {
            world.start_serve()?;
        }
        Ok(world)
    }

    /// Does one thing, as far as it can be done.
    pub(crate) fn act(&mut self, action: &Action) {
        let came = match action {
            Action::Start(start) => self.start(start),
            Action::Call(actor) => self.with(*actor, Actor::call),
            Action::Abandon(actor) => self.with(*actor, Actor::abandon),
            Action::Close(actor) => self.with(*actor, Actor::close),
            Action::Delete(actor) => self.with(*actor, Actor::delete),
            Action::End(actor) => self.end(*actor),
            Action::Strike(blow, parts) => self.strike(*blow, parts),
            Action::Disk(change) => {
                self.disk.as_ref().map_or("no disk".to_owned(), |disk| match disk.change(*change) {
                    Ok(()) => "done".to_owned(),
                    Err(error) => error.to_string(),
                })
            }
            Action::Cut(origin) => self.upstream(*origin, |upstream| format!("{} connections", upstream.cut())),
            Action::RestartOrigin(origin) => {
                self.was_away = true;
                self.upstream(*origin, |upstream| {
                    upstream.restart();
                    "done".to_owned()
                })
            }
            Action::RestartServe(blow) => self.restart_serve(*blow),
            Action::Pause(time) => {
                wait::step(Duration::from_millis(*time));
                String::new()
            }
        };
        self.see_trees();
        self.note(&format!("{action}: {came}"));
    }

    pub(crate) fn note(&mut self, what: &str) {
        self.history.push(format!("{:7.3} {what}", self.watch.time().as_secs_f64()));
    }

    fn with(&mut self, actor: u32, act: fn(&mut Actor)) -> String {
        match self.actors.get_mut(&actor) {
            Some(actor) => {
                act(actor);
                "done".to_owned()
            }
            None => "nobody".to_owned(),
        }
    }

    fn upstream(&mut self, wanted: Origin, act: impl FnOnce(&mut Upstream) -> String) -> String {
        let found = self.upstreams.values_mut().find(|(origin, _)| *origin == wanted);
        found.map_or_else(String::new, |(_, upstream)| act(upstream))
    }

    fn start(&mut self, start: &Start) -> String {
        let command = match self.command(start) {
            Ok(command) => command,
            Err(why) => return format!("not started: {why}"),
        };
        let mut actor = match Actor::begin(start.clone(), command) {
            Ok(actor) => actor,
            Err(why) => return format!("not started: {why}"),
        };
        // Nobody comes up behind a gateway that is stopped, however long one waits.
        let is_hopeless = uses_serve(start.route) && self.serve_is_stopped();
        if !start.hurry && !is_hopeless {
            actor.wait_up();
        }
        actor.look();
        let came = if actor.up { "up" } else { "not up" };
        if !actor.up && start.route != Route::Run {
            self.doubts += 1;
        }
        self.actors.insert(start.actor, actor);
        came.to_owned()
    }

    /// The host or client with everything it is told.
    fn command(&self, start: &Start) -> Result<Command, String> {
        let url = match start.route {
            Route::Run => String::new(),
            Route::Connect => self.origin_url(start.origin),
            Route::ConnectServe | Route::ServeStdio => self.serve()?.url("stdio"),
            Route::ServeHttp => self.serve()?.url(&start.origin.to_string()),
        };
        let words = match start.route {
            Route::Run => self.run_words(start)?,
            Route::Connect | Route::ConnectServe => {
                let grace = format!("{}ms", start.grace);
                vec![self.scene.leash_path().into(), "connect".into(), "--grace".into(), grace.into(), (&url).into()]
            }
            Route::ServeStdio | Route::ServeHttp => Vec::new(),
        };
        let sdk = match start.driver {
            Driver::Python => Sdk::Python2,
            Driver::TypeScript => Sdk::TypeScript1,
            Driver::Pipe | Driver::Socketpair => return Ok(self.raw(start, &url, &words)),
        };
        let deps = self.deps.as_ref().ok_or("the SDKs are not installed")?;
        let target = if words.is_empty() { Target::Http(url) } else { Target::Stdio(words) };
        let words = Order { sdk, mode: Mode::Legacy, acts: &["hang"], target }.words(deps);
        let mut command = self.scene.command(&words[0]);
        command.args(&words[1..]).current_dir(deps.npm()).env("PYTHONDONTWRITEBYTECODE", "1");
        command.stderr(self.scene.stderr_file());
        Ok(command)
    }

    fn raw(&self, start: &Start, url: &str, words: &[OsString]) -> Command {
        let mut command = match words {
            [] => self.scene.zoo(["http-client", "obey", url]),
            _ => {
                let channel = if start.driver == Driver::Pipe { Channel::Pipe } else { Channel::Socketpair };
                let mut command = self.scene.zoo(Manner { channel, ..Manner::default() }.words());
                command.args(words);
                command
            }
        };
        let limit = match start.scarce {
            (Scarce::Nothing, _) => None,
            (Scarce::Descriptors, most) => Some(Step::Limit(Resource::Nofile, most)),
            (Scarce::Processes, most) => Some(Step::Limit(Resource::Nproc, most)),
        };
        sys::prepare(&mut command, limit.into_iter().collect());
        command.stderr(self.scene.stderr_file());
        command
    }

    fn run_words(&self, start: &Start) -> Result<Vec<OsString>, String> {
        let server = match start.server {
            Server::Everything => ["npx", "-y", "@modelcontextprotocol/server-everything"].map(OsString::from).into(),
            Server::Fixture => self.fixture_words(),
            Server::Python => {
                let deps = self.deps.as_ref().ok_or("the SDKs are not installed")?;
                let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../leash/tests/real_hosts/server.py");
                vec![deps.python().into(), script.into()]
            }
            zoo => self.scene.tree(&zoo.to_string(), ["--mcp"]),
        };
        let grace = format!("{}ms", start.grace);
        Ok(self.scene.run_words(["--contain", &self.plan.hold.to_string(), "--grace", &grace], &server))
    }

    fn fixture_words(&self) -> Vec<OsString> {
        let census = self.scene.dir().join("census").into_os_string();
        vec![self.scene.fixture_path().into(), "stdio".into(), "--census".into(), census]
    }

    fn origin_url(&self, wanted: Origin) -> String {
        self.upstreams.values().find(|(origin, _)| *origin == wanted).map(|(_, one)| one.url()).unwrap_or_default()
    }

    fn serve_is_stopped(&self) -> bool {
        let serve = self.serve.as_ref().and_then(|serve| Process::read(serve.pid()));
        serve.is_some_and(|serve| serve.state == 'T')
    }

    fn serve(&self) -> Result<&Gateway, String> {
        self.serve.as_ref().ok_or_else(|| "there is no gateway".to_owned())
    }

    /// Starts `leash serve` in front of a stdio server and both upstream servers.
    pub(crate) fn start_serve(&mut self) -> Result<(), String> {
        // What stays in its group is all that `group` promises to end.
        let kind = if self.plan.hold == Hold::Group { "chain" } else { "mixed" };
        let words = self.scene.tree(kind, ["--mcp", "--size", "5"]);
        let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let mut servers = serde_json::Map::new();
        servers.insert("stdio".to_owned(), serde_json::json!({"command": words[0], "args": words[1..]}));
        for (name, (_, upstream)) in &self.upstreams {
            servers.insert((*name).to_owned(), serde_json::json!({"type": "http", "url": upstream.url()}));
        }
        let grace = format!("{}ms", self.plan.grace);
        let contain = self.plan.hold.to_string();
        let policy = serde_json::json!({"linger": "100ms", "grace": grace, "contain": contain});
        let text = serde_json::json!({"mcpServers": servers, "leash": policy}).to_string();
        let file = self.scene.dir().join("leash.json");
        fs::write(&file, text).map_err(|error| error.to_string())?;
        let words = ["--config".into(), file.into_os_string()];
        // At the same place as before: those who were there find the next one.
        let gateway = Gateway::attempt(&self.scene, &self.listen, Vec::new(), words)?;
        self.listen = gateway.address().to_string();
        self.serve = Some(gateway);
        self.serve_was_struck = false;
        Ok(())
    }

    fn restart_serve(&mut self, blow: Blow) -> String {
        if let Some(serve) = self.serve.take() {
            if blow == Blow::Kill {
                self.harm(Part::Leash, serve.pid());
            }
            serve.signal(signal(blow));
            if !serve.wait_gone(wait::LIMIT) {
                // It was stopped before, and ends when the episode does.
                let came = "it stays".to_owned();
                self.serve = Some(serve);
                return came;
            }
        }
        match self.start_serve() {
            Ok(()) => "done".to_owned(),
            Err(why) => format!("not started: {}", why.trim_end()),
        }
    }

    /// `leash end` of what a client of its own leash has.
    fn end(&mut self, actor: u32) -> String {
        let Some(leash) = self.actors.get(&actor).and_then(Actor::leash) else { return "nobody".to_owned() };
        let Some(session) = descendants(leash).iter().find_map(session_of) else { return "no session".to_owned() };
        let answer = self.scene.answer(["end", &session]);
        format!("{session} {} {}", answer.code, answer.stderr.trim_end())
    }

    fn strike(&mut self, blow: Blow, parts: &[(u32, Part)]) -> String {
        self.see_trees();
        let found: Vec<(Part, Handle)> =
            parts.iter().filter_map(|(actor, part)| Some((*part, self.part(*actor, *part)?))).collect();
        if blow == Blow::Kill {
            for (part, handle) in &found {
                self.harm(*part, handle.pid());
            }
        }
        let mut came = String::new();
        for (part, handle) in found {
            self.serve_was_struck |= self.serve.as_ref().is_some_and(|serve| serve.pid() == handle.pid());
            let sent = handle.signal(signal(blow));
            came.push_str(&format!(
                "{part} {} {}",
                handle.pid().as_raw_nonzero(),
                if sent.is_ok() { "" } else { "refused " }
            ));
            if blow == Blow::Stop {
                self.stopped.push(handle);
            }
        }
        came
    }

    fn part(&mut self, actor: u32, part: Part) -> Option<Handle> {
        let actor = self.actors.get_mut(&actor)?;
        actor.look();
        let of_all = !matches!(part, Part::Host) && matches!(actor.start.route, Route::ServeStdio | Route::ServeHttp);
        if !of_all {
            return actor.part(part);
        }
        let serve = self.serve.as_ref()?.pid();
        let below = descendants(serve);
        let choose = |wanted: Vec<&Process>| {
            let chosen = wanted.get(actor.start.actor as usize % wanted.len().max(1))?;
            Handle::open(chosen.pid, |now| now.start == chosen.start)
        };
        let keepers: Vec<i32> =
            crate::process::children(serve).iter().map(|one| one.pid.as_raw_nonzero().get()).collect();
        match part {
            Part::Host => None,
            Part::Leash => Handle::open(serve, |_| true),
            Part::Keeper => {
                choose(below.iter().filter(|one| keepers.contains(&one.pid.as_raw_nonzero().get())).collect())
            }
            Part::Leader => choose(below.iter().filter(|one| keepers.contains(&one.parent)).collect()),
            Part::Member => {
                choose(below.iter().filter(|one| !keepers.contains(&one.pid.as_raw_nonzero().get())).collect())
            }
        }
    }

    /// Notes who is about to be killed, for the trees below.
    fn harm(&mut self, part: Part, pid: Pid) {
        if !matches!(part, Part::Leash | Part::Keeper) {
            return;
        }
        for session in descendants(pid).iter().filter_map(session_of) {
            let harm = self.trees.entry(session).or_default();
            match part {
                Part::Leash => harm.leash = true,
                _ => harm.keeper = true,
            }
        }
    }

    /// Notes every tree that can be seen.
    pub(crate) fn see_trees(&mut self) {
        let Some(outer) = self.scene.outer() else { return };
        for session in outer.processes().iter().filter_map(session_of) {
            self.trees.entry(session).or_default();
        }
    }

    /// Everything that was broken works again.
    pub(crate) fn heal(&mut self) {
        if let Some(disk) = &self.disk {
            disk.heal();
        }
        for handle in self.stopped.drain(..) {
            let _ = handle.signal(Signal::CONT);
        }
    }
}

fn uses_serve(route: Route) -> bool {
    matches!(route, Route::ConnectServe | Route::ServeStdio | Route::ServeHttp)
}

/// The session that a process was started for, as its environment says.
pub(crate) fn session_of(process: &Process) -> Option<String> {
    let environ = fs::read(format!("/proc/{}/environ", process.pid.as_raw_nonzero())).ok()?;
    let mut variables = environ.split(|byte| *byte == 0);
    let id = variables.find_map(|variable| variable.strip_prefix(b"LEASH_ID="))?;
    Some(String::from_utf8_lossy(id).into_owned())
}

fn signal(blow: Blow) -> Signal {
    match blow {
        Blow::Term => Signal::TERM,
        Blow::Int => Signal::INT,
        Blow::Hup => Signal::HUP,
        Blow::Kill => Signal::KILL,
        Blow::Stop => Signal::STOP,
        Blow::Cont => Signal::CONT,
    }
}

/// A host with a server that nobody touches.
fn resident(scene: &Scene, hold: Hold) -> Result<Actor, String> {
    let start = Start {
        actor: u32::MAX,
        driver: Driver::Pipe,
        route: Route::Run,
        server: Server::Setsid,
        origin: Origin::Honest,
        grace: 300,
        scarce: (Scarce::Nothing, 0),
        hurry: false,
    };
    let kind = if hold == Hold::Group { "chain" } else { "setsid" };
    let census = scene.dir().join("census-of-the-resident");
    let mut server: Vec<OsString> =
        vec![scene.zoo_path().into(), "tree".into(), kind.into(), "--size".into(), "2".into()];
    server.extend(["--mcp".into(), "--census".into(), census.into_os_string()]);
    let words = scene.run_words(["--contain", &hold.to_string(), "--grace", "300ms"], &server);
    let mut command = scene.zoo(Manner::default().words());
    command.args(words).stderr(scene.stderr_file());
    let mut resident = Actor::begin(start, command)?;
    resident.wait_up();
    resident.look();
    match resident.up {
        true => Ok(resident),
        false => Err(format!("not even the resident came up: {}", scene.stderr())),
    }
}

fn bystander(scene: &Scene, name: &str, apart: bool) -> Result<(String, Child, Handle), String> {
    let mut command = scene.zoo(["idle"]);
    sys::prepare(&mut command, if apart { vec![Step::OwnSession] } else { Vec::new() });
    // It may outlive a run that is killed, and must not keep anybody waiting for the end of its output then.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().map_err(|error| error.to_string())?;
    let handle = Handle::open(Pid::from_child(&child), |_| true).ok_or("a bystander has no number")?;
    Ok((name.to_owned(), child, handle))
}

impl Drop for World {
    fn drop(&mut self) {
        for (_, child, _) in &mut self.bystanders {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
