//! The end of an episode, and the facts that are gathered then, by witnesses that use no code of leash.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::action::{Origin, Part};
use super::actor::is_keeper_of_sessions;
use super::forgery::is_record;
use super::origin::Upstream;
use super::promise::may_stay;
use super::promise::{Early, Facts, Session, State, Survivor};
use super::world::{World, session_of};
use crate::gateway::Gateway;
use crate::process::{Process, children};
use crate::wait;

/// The interval between two looks at all processes. One look takes some milliseconds.
const LOOK: Duration = Duration::from_millis(20);

/// The timeout for a gateway that may not be able to look up the processes of its clients.
const BLIND: Duration = Duration::from_secs(5);

/// Pid and start time of processes, as the ledger has them.
pub(crate) type Known = HashSet<(i64, u64)>;

impl World {
    /// Ends the owners, waits, lets the next leash sweep, and returns the facts.
    pub(crate) fn finish(&mut self, patience: Duration) -> Facts {
        self.heal();
        self.look();
        self.check_serve();
        for actor in self.actors.values_mut() {
            actor.hear();
            actor.kill();
        }
        self.count_doubts();
        self.note_inherited();
        let mut facts = self.facts();
        // A living gateway must notice by itself that its clients are gone, so it is stopped only after that. Without a
        // descriptor it cannot look up its clients' processes, and only sees their traffic.
        let is_blind = self.openers.get(&self.gateway_name()).is_some_and(|wounds| wounds.mute);
        let limit = if is_blind { patience.min(BLIND) } else { patience };
        let mut wrong = self.wait_over(&facts, limit);
        wrong.extend(self.wait_empty(limit));
        wrong.retain(|_| !is_blind);
        if let (false, Some(said)) = (wrong.is_empty(), self.serve.as_ref().map(Gateway::said)) {
            // The log of the gateway says why it still has sessions, and is lost later.
            said.lines().for_each(|line| self.note(&format!("serve said: {line}")));
        }
        self.note("all owners are gone");
        wrong.extend(self.stop_serve(patience));
        self.wait_over(&facts, patience);
        self.look();
        facts.trees = self.trees.clone();
        Origin::ALL.iter().for_each(|origin| drop(self.regain(*origin)));
        facts.outages = self.outages.clone();
        let mut recorded = self.recorded();
        recorded.extend(&self.known);
        facts.before_sweep = self.survivors(&recorded);
        facts.early = self.early();
        wrong.extend(self.sweep(patience));
        facts.after_sweep = self.survivors(&recorded);
        self.note("leash was started again");
        wrong.extend(self.ask_the_innocent(patience));
        self.note("the end");
        wrong.append(&mut self.wrong);
        wrong.extend(panics(&self.scene.stderr()));
        facts.wrong = wrong;
        facts.ledger = files(&self.scene.runtime_dir());
        facts.receipts = self.receipts();
        facts.sessions = self.sessions();
        self.count(&facts);
        facts
    }

    /// The faults of the episode, before any findings.
    fn facts(&self) -> Facts {
        Facts {
            trees: self.trees.clone(),
            resident: self.resident_tree.clone(),
            openers: self.openers.clone(),
            was_hurt: self.was_hurt,
            forged: self.forged.clone(),
            ..Facts::none(self.plan.hold)
        }
    }

    /// The state before the next start of leash, which would repair it.
    fn early(&self) -> Early {
        // A record may be in the middle of a rename.
        let stem = |name: &String| name.rsplit_once('.').map_or(name.clone(), |(stem, _)| stem.to_owned());
        let living: HashSet<String> = self.ledger_of_the_resident.iter().map(stem).collect();
        let mut ledger = files(&self.scene.runtime_dir());
        ledger.retain(|name| !living.contains(&stem(name)));
        Early { sessions: self.sessions(), receipts: self.receipts(), ledger }
    }

    /// Every upstream session. If several gateways had the same configuration, it is attributed to the one that opened
    /// it.
    fn sessions(&self) -> Vec<Session> {
        let name = |session: &Session| match self.inherited.get(&session.id) {
            Some(opener) => opener.clone(),
            None if session.opener == self.epoch_name() => self.gateway_name(),
            None => session.opener.clone(),
        };
        let sessions = self.upstreams.values().flat_map(Upstream::sessions);
        sessions.map(|session| Session { opener: name(&session), ..session }).collect()
    }

    /// Attributes the sessions that were opened so far to the current gateway, or to the last one.
    pub(crate) fn note_inherited(&mut self) {
        for session in self.sessions() {
            self.inherited.entry(session.id).or_insert(session.opener);
        }
    }

    pub(crate) fn receipts(&self) -> Vec<Value> {
        receipts(&self.scene.dir().join("state/leash/receipts.jsonl"))
    }

    /// Fills in the tally of the episode.
    fn count(&mut self, facts: &Facts) {
        let tally = &mut self.tally;
        tally.sessions.opened += facts.sessions.len() as u64;
        for session in &facts.sessions {
            match (session.state, facts.left(&session.id)) {
                (State::Ended, _) => tally.sessions.deleted += 1,
                (State::Lost, _) => tally.sessions.lost += 1,
                (State::Open, Some(how)) => tally.sessions.left.add(how),
                (State::Open, None) => tally.sessions.unknown += 1,
            }
        }
        tally.processes = self.seen.len() as u64;
        // The resident's tree is never hit.
        tally.trees = facts.trees.keys().filter(|session| facts.resident.as_ref() != Some(session)).count() as u64;
        tally.orphaned = facts.trees.values().filter(|harm| harm.is_orphaned()).count() as u64;
        tally.receipts = facts.receipts.len() as u64;
        // Includes the resident, which has its own server.
        tally.bystanders = self.bystanders.len() as u64 + 1;
    }

    /// Waits until only a living gateway and permitted processes are left. Returns the others.
    fn wait_over(&self, facts: &Facts, patience: Duration) -> Vec<String> {
        let serve = self.serve.as_ref().filter(|serve| serve.is_alive()).map(Gateway::pid);
        let left = || -> Vec<Survivor> {
            let keepers = serve.map(children).unwrap_or_default().into_iter().filter(is_keeper_of_sessions);
            let living: Vec<_> = keepers.map(|keeper| keeper.pid).chain(serve).collect();
            let mut survivors = self.survivors(&Known::new());
            survivors.retain(|one| !living.contains(&one.pid) && !facts.may_wait_for_a_sweep(one));
            // A process in another namespace may be left, if a receipt says so.
            let receipts = if survivors.iter().any(|one| one.foreign) { self.receipts() } else { Vec::new() };
            survivors.retain(|one| !may_stay(one, &receipts));
            survivors
        };
        match wait::every(LOOK, patience, || left().is_empty().then_some(())) {
            Some(()) => Vec::new(),
            None => left().iter().map(|one| format!("owners are gone, not so {}", one.shown)).collect(),
        }
    }

    /// Waits until a living gateway that was not told to end has no session: all its clients are gone.
    fn wait_empty(&self, patience: Duration) -> Option<String> {
        let is_told = self.openers.get(&self.gateway_name()).is_some_and(|wounds| wounds.stops > 0);
        let serve = self.serve.as_ref().filter(|serve| serve.is_alive() && !is_told)?;
        // A killed gateway may need a moment to exit. One that dies by itself is detected later.
        let is_over = || serve.all_sessions() == Some(0) || !serve.is_alive();
        match wait::every(LOOK, patience, || is_over().then_some(())) {
            Some(()) => None,
            None => Some(format!("clients are gone, and not so all of their sessions: {:?}", serve.all_sessions())),
        }
    }

    fn stop_serve(&mut self, patience: Duration) -> Vec<String> {
        self.check_serve();
        let wounds = *self.wounds(&self.gateway_name());
        let Some(serve) = self.serve.take() else { return Vec::new() };
        // A second signal would make it abandon pending work.
        let stopping =
            Stopping { name: "`leash serve`", is_told: wounds.stops > 0, is_excused: wounds.short || wounds.leash };
        stop(serve, &stopping, patience)
    }

    /// Runs the next start of leash, which sweeps the remains of earlier ones.
    fn sweep(&mut self, patience: Duration) -> Vec<String> {
        // On any port: the old one may be taken by now.
        let serve = match self.serve_at("127.0.0.1:0") {
            Ok(serve) => serve,
            Err(why) => return vec![format!("the next start of leash failed: {why}")],
        };
        // When the sweep is done, only its own book and the record of the resident are left.
        let books =
            || files(&self.scene.runtime_dir().join("gateways")).iter().filter(|name| name.ends_with(".jsonl")).count();
        let swept = wait::every(LOOK, patience, || (books() <= 1).then_some(()));
        let stopping = Stopping { name: "the `leash serve` that sweeps", is_told: false, is_excused: false };
        let mut wrong = stop(serve, &stopping, patience);
        if swept.is_none() {
            wrong.push("books of dead gateways stay".to_owned());
        }
        wrong
    }

    pub(crate) fn survivors(&self, recorded: &Known) -> Vec<Survivor> {
        let mut found = self.scene.outer().map(|outer| outer.processes()).unwrap_or_default();
        found.extend(self.scene.witness().holders());
        let mut seen = HashSet::new();
        found.retain(|one| !self.innocent.contains(&(one.pid, one.start)) && seen.insert(one.pid));
        found.iter().map(|one| Survivor { foreign: self.is_foreign(one.pid), ..survivor(one, recorded) }).collect()
    }

    /// The members that the ledger knows.
    pub(crate) fn recorded(&self) -> Known {
        let members = |record: Value| {
            let mut all = record["members"].as_array().cloned().unwrap_or_default();
            all.push(record["leader"].clone());
            all
        };
        self.records()
            .flat_map(members)
            .filter_map(|one| Some((one["pid"].as_i64()?, one["start"].as_u64()?)))
            .collect()
    }

    /// The number of runs with members that leash saw enter a PID namespace.
    pub(crate) fn seen_in_namespaces(&self) -> usize {
        self.records().filter(|record| record["entered"].as_array().is_some_and(|all| !all.is_empty())).count()
    }

    /// The readable records of runs in the ledger.
    fn records(&self) -> impl Iterator<Item = Value> {
        let records = self.scene.ledger().into_iter().filter(|path| is_record(path));
        records.filter_map(|path| serde_json::from_slice(&fs::read(path).ok()?).ok())
    }

    /// Checks that the resident still works and exits properly, and that the other bystanders are untouched.
    fn ask_the_innocent(&mut self, patience: Duration) -> Vec<String> {
        let mut wrong = Vec::new();
        for (name, _, handle) in &self.bystanders {
            let is_well = Process::read(handle.pid()).is_some_and(|process| matches!(process.state, 'R' | 'S' | 'D'));
            if !handle.is_alive() || !is_well {
                wrong.push(format!("the bystander {name} was hit"));
            }
        }
        if !self.resident.is_answered() {
            wrong.push("the server of a living host no longer answers".to_owned());
        }
        let leash = self.resident.part(Part::Leash);
        self.resident.kill();
        if leash.is_some_and(|leash| !leash.wait_gone(patience)) {
            wrong.push("the leash of the resident stays".to_owned());
        }
        if let Err(left) = self.other_census.wait_gone(patience) {
            wrong.push(format!("the resident is gone, and not its server: {left}"));
        }
        wrong
    }
}

/// The circumstances in which a gateway is stopped.
struct Stopping {
    name: &'static str,
    /// It has got a signal before.
    is_told: bool,
    /// It may have failed. It must exit all the same.
    is_excused: bool,
}

fn stop(mut serve: Gateway, how: &Stopping, patience: Duration) -> Vec<String> {
    if !how.is_told {
        serve.signal(Signal::TERM);
    }
    if !serve.wait_gone(patience) {
        return vec![format!("{} does not stop: {}", how.name, serve.said())];
    }
    let mut wrong = panics(&serve.said());
    match serve.wait() {
        Some(0) => {}
        _ if how.is_excused => {}
        code => wrong.push(format!("{} failed with {code:?}: {}", how.name, serve.said())),
    }
    wrong
}

/// Returns the panics of leash. None is ever excused: in a build with `panic=abort` a panic ends the gateway and all
/// its sessions.
pub(crate) fn panics(said: &str) -> Vec<String> {
    let ours = said.lines().filter(|line| line.contains("panicked at crates/leash"));
    ours.map(|line| format!("leash panicked: {line}")).collect()
}

fn survivor(process: &Process, recorded: &Known) -> Survivor {
    let key = (i64::from(process.pid.as_raw_nonzero().get()), process.start);
    Survivor {
        pid: process.pid,
        shown: process.to_string(),
        session: session_of(process),
        recorded: recorded.contains(&key),
        foreign: false,
    }
}

/// The files below a directory, as relative paths.
pub(crate) fn files(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut dirs: Vec<PathBuf> = vec![dir.to_owned()];
    while let Some(next) = dirs.pop() {
        for path in fs::read_dir(next).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())) {
            match path.is_dir() {
                true => dirs.push(path),
                false => found.push(path.strip_prefix(dir).unwrap_or(&path).display().to_string()),
            }
        }
    }
    found
}

fn receipts(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    // A line that is not a receipt is kept as a string, which matches no expectation.
    text.lines().map(|line| serde_json::from_str(line).unwrap_or(Value::String(line.to_owned()))).collect()
}
