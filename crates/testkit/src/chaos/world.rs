//! The world of one episode, and the actions in it. [`super::cast`] has the processes in it, [`super::blows`] the
//! faults that hit them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::action::{Action, Blow, Disk, Origin, Part, Scarce, Server, Start};
use super::actor::{Actor, UP, descendants};
use super::attacks::{Namespace, Tracer};
use super::audit::{Known, files};
use super::blows::signal;
use super::cast;
use super::disk::SmallDisk;
use super::origin::Upstream;
use super::plan::Plan;
use super::promise::{Forged, Harm, Wounds};
use super::tally::Tally;
use super::wounds::Squeezed;
use crate::census::Census;
use crate::cgroup::{Outer, PidsBound};
use crate::deps::Deps;
use crate::gateway::Gateway;
use crate::process::{Handle, Process};
use crate::scene::Scene;
use crate::wait::{self, Stopwatch};

/// The timeout for an actor that can hardly come up.
const LITTLE_HOPE: Duration = Duration::from_secs(1);

/// The time that leash may take for its first looks at a new tree. It looks several times in the first second.
const FIRST_LOOKS: Duration = Duration::from_secs(2);

/// The timeout for an actor that must come up. On a busy machine that takes long, which is no complaint.
const SURELY_UP: Duration = Duration::from_secs(60);

/// The reason why there is no world.
#[derive(Debug)]
pub(crate) enum Unset {
    /// The machine lacks a feature.
    Machine(String),
    /// leash does not start, although no fault has hit it.
    Leash(String),
}

impl From<String> for Unset {
    fn from(why: String) -> Self {
        Self::Machine(why)
    }
}

/// Everything in an episode. Dropped in this order: first the actors, then what they use.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) plan: Plan,
    /// Dropped first, so that they detach their keepers.
    pub(crate) tracers: Vec<Tracer>,
    pub(crate) actors: BTreeMap<u32, Actor>,
    pub(crate) serve: Option<Gateway>,
    /// The address of the gateway.
    pub(crate) listen: String,
    /// The number of earlier gateways.
    pub(crate) generation: u64,
    /// The number of the first gateway with the same configuration: a killed gateway leaves its sessions to the next
    /// one, which must have the same servers.
    pub(crate) epoch: u64,
    /// The upstream sessions that existed when a gateway started, and the gateway that had opened them.
    pub(crate) inherited: HashMap<String, String>,
    /// The faults that hit the leashes that open upstream sessions, by the names that the servers know.
    pub(crate) openers: BTreeMap<String, Wounds>,
    /// An actor that lives through the episode, untouched, with the same ledger.
    pub(crate) resident: Actor,
    /// The session of its server.
    pub(crate) resident_tree: Option<String>,
    pub(crate) bystanders: Vec<(String, Child, Handle)>,
    /// Pid and start time of the processes that existed before the first action.
    pub(crate) innocent: HashSet<(Pid, u64)>,
    pub(crate) upstreams: BTreeMap<Origin, Upstream>,
    /// The number of restarts of each upstream server.
    pub(crate) restarts: BTreeMap<Origin, u64>,
    /// The unreachable upstream servers, and since when.
    pub(crate) unreached: BTreeMap<Origin, Stopwatch>,
    /// The total time for which each of them was unreachable.
    pub(crate) outages: BTreeMap<Origin, Duration>,
    pub(crate) deps: Option<Deps>,
    pub(crate) stopped: Vec<Handle>,
    /// The forged files in the ledger, by the names of runs.
    pub(crate) forged: BTreeMap<String, Forged>,
    /// The processes that the ledger knew when their supervisor and keeper were both gone.
    pub(crate) known: Known,
    /// A PID namespace that leash did not make.
    pub(crate) namespace: Option<Namespace>,
    pub(crate) squeezed: Vec<Squeezed>,
    /// The files of the resident in the runtime directory.
    pub(crate) ledger_of_the_resident: Vec<String>,
    /// True if a process of leash was killed by SIGKILL or was short of a resource, or the disk of the ledger failed.
    pub(crate) was_hurt: bool,
    /// The complaints so far.
    pub(crate) wrong: Vec<String>,
    pub(crate) trees: BTreeMap<String, Harm>,
    /// The trees that were ever seen below a process.
    pub(crate) below: HashMap<Pid, BTreeSet<String>>,
    /// Every process that was ever seen.
    pub(crate) seen: HashSet<(Pid, u64)>,
    pub(crate) tally: Tally,
    /// The time since the start.
    watch: Stopwatch,
    /// The actions and their results, for people.
    pub(crate) history: Vec<String>,
    pub(crate) disk: Option<SmallDisk>,
    /// The census of the resident, which is not counted.
    pub(crate) other_census: Census,
    pub(crate) scene: Scene,
    /// The cgroups of the actors with few processes. Their processes are killed with the scene.
    pub(crate) bounds: Vec<PidsBound>,
}

impl World {
    pub(crate) fn set(plan: &Plan, scene: Scene) -> Result<Self, Unset> {
        let disk = match plan.needs_disk() {
            true => {
                Some(SmallDisk::mount(&scene.runtime_dir(), scene.user().uid()).map_err(|error| error.to_string())?)
            }
            false => None,
        };
        let other_census = Census::create(scene.dir().join("census-of-the-resident"));
        let resident = cast::resident(&scene, plan.hold)?;
        let bystanders = cast::bystanders(&scene)?;
        let mut innocent = scene.outer().map(Outer::processes).unwrap_or_default();
        // These may still be on their way into the cgroup.
        innocent.extend(bystanders.iter().filter_map(|(_, _, handle)| Process::read(handle.pid())));
        let innocent = innocent.iter().map(|one| (one.pid, one.start)).collect();
        let mut world = Self {
            plan: plan.clone(),
            tracers: Vec::new(),
            actors: BTreeMap::new(),
            serve: None,
            listen: "127.0.0.1:0".to_owned(),
            generation: 0,
            epoch: 0,
            inherited: HashMap::new(),
            openers: BTreeMap::new(),
            resident_tree: resident.leash().and_then(|leash| descendants(leash).iter().find_map(session_of)),
            resident,
            bystanders,
            innocent,
            upstreams: Origin::ALL.iter().map(|origin| (*origin, Upstream::start(*origin))).collect(),
            restarts: BTreeMap::new(),
            unreached: BTreeMap::new(),
            outages: BTreeMap::new(),
            deps: Deps::find().ok(),
            stopped: Vec::new(),
            forged: BTreeMap::new(),
            known: Known::new(),
            namespace: None,
            squeezed: Vec::new(),
            ledger_of_the_resident: files(&scene.runtime_dir()),
            was_hurt: false,
            wrong: Vec::new(),
            trees: BTreeMap::new(),
            below: HashMap::new(),
            seen: HashSet::new(),
            tally: Tally::default(),
            watch: Stopwatch::start(),
            history: Vec::new(),
            disk,
            other_census,
            scene,
            bounds: Vec::new(),
        };
        if plan.needs_server(Server::Foreign) {
            world.start_namespace()?;
        }
        if plan.needs_serve() {
            world.start_serve().map_err(Unset::Leash)?;
        }
        Ok(world)
    }

    /// Performs one action, as far as that is possible.
    pub(crate) fn act(&mut self, action: &Action) {
        let came = match action {
            Action::Start(start) => self.start(start),
            Action::Call(actor) => self.with(*actor, "call", Actor::call),
            Action::Abandon(actor) => self.with(*actor, "abandon", Actor::abandon),
            Action::Close(actor) => self.with(*actor, "close", Actor::close),
            Action::Delete(actor) => self.with(*actor, "DELETE", Actor::delete),
            Action::End(actor) => self.end(*actor),
            Action::Strike(blow, parts) => self.strike(*blow, parts),
            Action::Squeeze(whom, scarce, most) => self.squeeze(*whom, *scarce, *most),
            Action::Disk(change) => self.change_disk(*change),
            Action::Forge(actor, forgery) => self.forge(*actor, *forgery),
            Action::Starve(actor, most) => self.starve(*actor, *most),
            Action::Trace(actor) => self.trace(*actor),
            Action::Force(actor) => self.force(*actor),
            Action::Visit(route, server, origin, clients) => self.visit(*route, *server, *origin, *clients),
            Action::Cut(origin) => self.cut(*origin),
            Action::RestartOrigin(origin) => self.restart_origin(*origin),
            Action::Down(origin) => self.lose(*origin),
            Action::Up(origin) => self.regain(*origin),
            Action::RestartServe(blow) => self.restart_serve(*blow),
            Action::Grace(time) => self.reload(*time),
            Action::Pause(time) => {
                self.tally.actions.add("pause");
                wait::step(Duration::from_millis(*time));
                String::new()
            }
        };
        self.look();
        self.note(&format!("{action}: {came}"));
    }

    pub(crate) fn note(&mut self, what: &str) {
        self.history.push(format!("{:7.3} {what}", self.watch.time().as_secs_f64()));
    }

    /// Performs and counts an action of an actor. Not every actor can do everything, and a dead one does nothing.
    fn with(&mut self, actor: u32, name: &str, act: fn(&mut Actor) -> bool) -> String {
        match self.actors.get_mut(&actor).map(act) {
            Some(true) => {
                self.tally.actions.add(name);
                "done".to_owned()
            }
            Some(false) => "in vain".to_owned(),
            None => "no such actor".to_owned(),
        }
    }

    fn start(&mut self, start: &Start) -> String {
        self.tally.actions.add("start");
        let begun = self.command(start).and_then(|command| Actor::begin(start.clone(), command));
        let mut actor = match begun {
            Ok(actor) => actor,
            Err(why) => return format!("not started: {why}"),
        };
        self.tally.start(start);
        actor.opener = self.opener(start);
        actor.restarts = self.restarts.get(&start.origin).copied().unwrap_or_default();
        if start.scarce.0 != Scarce::Nothing {
            self.was_hurt = true;
            actor.opener.iter().for_each(|opener| self.wounds(opener).short = true);
        }
        let must_come = self.must_come_up(start);
        let seen_before = self.seen_in_namespaces();
        if !start.hurry {
            // Behind a stopped gateway no actor comes up, and behind one without descriptors hardly any.
            let is_hopeless = start.route.uses_serve() && (self.serve_is_stopped() || self.serve_is_squeezed());
            actor.wait_up(if must_come {
                SURELY_UP
            } else if is_hopeless {
                LITTLE_HOPE
            } else {
                UP
            });
        }
        actor.look();
        let is_up = actor.up == Some(true);
        self.actors.insert(start.actor, actor);
        if is_up && start.server == Server::Foreign {
            // leash promises nothing about a process that left the tree through a namespace before leash looked. The
            // wait has a limit, because a failing disk hides that leash has looked.
            wait::within(FIRST_LOOKS, || (self.seen_in_namespaces() > seen_before).then_some(()));
        }
        if must_come && !is_up {
            self.wrong.push(format!("nothing is in its way, and it does not come up: start {}", start.actor));
        }
        if is_up { "up" } else { "not up" }.to_owned()
    }

    fn change_disk(&mut self, change: Disk) -> String {
        let Some(disk) = &self.disk else { return "no disk".to_owned() };
        match disk.change(change) {
            Ok(()) => {
                self.was_hurt |= matches!(change, Disk::Full | Disk::ReadOnly);
                self.tally.faults.add(format_args!("disk {change}"));
                "done".to_owned()
            }
            Err(error) => error.to_string(),
        }
    }

    fn cut(&mut self, origin: Origin) -> String {
        // Before the cut: an actor may say that its `initialize` failed as soon as the connection is gone.
        let waiting = self.waiting_for(origin);
        let Some(upstream) = self.upstreams.get(&origin) else { return String::new() };
        let cut = upstream.cut();
        if cut > 0 {
            self.tally.faults.add("connections to upstream cut");
            self.doubt(|actor| actor.start.origin == origin);
            for (_, actor) in self.actors.iter_mut().filter(|(id, _)| waiting.contains(id)) {
                actor.is_doubted = true;
            }
        }
        format!("{cut} connections")
    }

    fn restart_origin(&mut self, origin: Origin) -> String {
        self.tally.faults.add("upstream restarted");
        self.doubt_origin(origin);
        *self.restarts.entry(origin).or_default() += 1;
        if let Some(upstream) = self.upstreams.get_mut(&origin) {
            upstream.restart();
        }
        "done".to_owned()
    }

    fn serve_is_squeezed(&self) -> bool {
        let serve = self.serve.as_ref().map(Gateway::pid);
        self.squeezed.iter().any(|one| Some(one.handle.pid()) == serve)
    }

    pub(crate) fn serve_is_stopped(&self) -> bool {
        let serve = self.serve.as_ref().and_then(|serve| Process::read(serve.pid()));
        serve.is_some_and(|serve| serve.state == 'T')
    }

    fn restart_serve(&mut self, blow: Blow) -> String {
        self.check_serve();
        if self.serve.is_some() {
            self.hit_opener(&self.gateway_name(), blow, Part::Leash);
        }
        if let Some(serve) = &self.serve {
            serve.signal(signal(blow));
            let is_over = || !serve.is_alive() || self.serve_is_stopped();
            wait::within(wait::LIMIT, || is_over().then_some(()));
            if serve.is_alive() {
                // It ends at the end of the episode.
                return "it stays".to_owned();
            }
            self.check_serve();
        }
        match self.start_serve() {
            Ok(()) => {
                self.tally.faults.add(format_args!("serve restarted by {blow}"));
                "done".to_owned()
            }
            Err(why) => {
                self.check_restart(&why);
                format!("not started: {}", why.trim_end())
            }
        }
    }

    /// Makes the gateway reload its configuration with another grace. It keeps its sessions.
    fn reload(&mut self, grace: u64) -> String {
        self.plan.grace = grace;
        let Some(serve) = &self.serve else { return "no gateway".to_owned() };
        if let Err(why) = self.configure() {
            return why;
        }
        serve.signal(Signal::HUP);
        self.tally.actions.add("serve reloaded with another grace");
        "done".to_owned()
    }

    /// Runs `leash end` for the session of an actor with its own leash.
    fn end(&mut self, actor: u32) -> String {
        let Some(leash) = self.actors.get(&actor).and_then(Actor::leash) else { return "no such process".to_owned() };
        let Some(session) = descendants(leash).iter().find_map(session_of) else { return "no session".to_owned() };
        self.tally.actions.add("leash end");
        let answer = self.scene.answer(["end", &session]);
        format!("{session} {} {}", answer.code, answer.stderr.trim_end())
    }

    /// Notes every process and every tree that exists now.
    pub(crate) fn look(&mut self) {
        let Some(outer) = self.scene.outer() else { return };
        let all = outer.processes();
        for process in &all {
            self.seen.insert((process.pid, process.start));
            let is_bystander = self.bystanders.iter().any(|(_, _, handle)| handle.pid() == process.pid);
            if let (false, Some(session)) = (is_bystander, session_of(process)) {
                self.note_above(&all, process, &session);
                let is_foreign = self.is_foreign(process.pid);
                self.trees.entry(session).or_default().foreign |= is_foreign;
            }
        }
        self.look_at_short();
    }

    /// Ends all faults. An actor that was started with a limit keeps it.
    pub(crate) fn heal(&mut self) {
        if let Some(disk) = &self.disk {
            disk.heal();
        }
        self.release();
        self.let_go();
        for handle in self.stopped.drain(..) {
            let _ = handle.signal(Signal::CONT);
        }
    }
}

/// The session that a process was started for, from its environment.
pub(crate) fn session_of(process: &Process) -> Option<String> {
    session_in(&fs::read(format!("{}/environ", process.dir())).ok()?)
}

/// The same from the bytes of `/proc/PID/environ`. If the process is about to execute another program, the bytes may
/// end anywhere, so only variables with their terminator are read.
fn session_in(environ: &[u8]) -> Option<String> {
    let mut variables = environ.split_inclusive(|byte| *byte == 0);
    let id = variables.find_map(|variable| variable.strip_prefix(b"LEASH_ID=")?.strip_suffix(&[0]))?;
    Some(String::from_utf8_lossy(id).into_owned())
}

impl Drop for World {
    fn drop(&mut self) {
        for (_, child, _) in &mut self.bystanders {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unterminated_session_name_is_ignored() {
        assert_eq!(session_in(b"A=1\0LEASH_ID=abc\0B=2\0"), Some("abc".to_owned()));
        assert_eq!(session_in(b"A=1\0LEASH_ID=abc\0"), Some("abc".to_owned()));
        assert_eq!(session_in(b"A=1\0LEASH_ID=ab"), None);
        assert_eq!(session_in(b"A=1\0B=LEASH_ID=ab\0"), None);
        assert_eq!(session_in(b""), None);
    }
}
