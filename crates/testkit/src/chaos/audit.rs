//! The end of an episode, and the facts that are gathered then, by witnesses that know nothing of leash.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::promise::{Facts, Survivor};
use super::world::{World, session_of};
use crate::gateway::Gateway;
use crate::process::Process;
use crate::wait;

/// How often all processes are looked at: it takes some milliseconds.
const LOOK: Duration = Duration::from_millis(20);

/// Number and start time, as the ledger has them.
type Known = HashSet<(i64, u64)>;

impl World {
    /// Ends the owners, waits, lets the next leash sweep, and says what is there.
    pub(crate) fn finish(&mut self, patience: Duration) -> Facts {
        self.heal();
        self.look();
        for actor in self.actors.values_mut() {
            actor.hear();
            actor.kill();
        }
        let mut facts = Facts {
            hold: self.plan.hold,
            trees: self.trees.clone(),
            before_sweep: Vec::new(),
            after_sweep: Vec::new(),
            ledger: Vec::new(),
            receipts: Vec::new(),
            open: Vec::new(),
            ended: Vec::new(),
            doubts: self.actors.values().filter(|actor| actor.is_doubted && !actor.up).count(),
            was_mute: self.was_mute,
            bystanders: Vec::new(),
        };
        // A gateway that lives must have seen by itself that its clients are gone: it is stopped after that.
        let mut bystanders = self.wait_over(&facts, patience);
        if let (false, Some(said)) = (bystanders.is_empty(), self.serve.as_ref().map(Gateway::said)) {
            // It knows why it still has them, and nobody asks it later.
            said.lines().for_each(|line| self.note(&format!("serve said: {line}")));
        }
        self.note("all owners are gone");
        bystanders.extend(self.stop_serve(patience));
        self.wait_over(&facts, patience);
        let recorded = self.recorded();
        facts.before_sweep = self.survivors(&recorded);
        bystanders.extend(self.sweep(patience));
        facts.after_sweep = self.survivors(&recorded);
        self.note("leash was started again");
        bystanders.extend(self.ask_the_innocent(patience));
        self.note("the end");
        facts.bystanders = bystanders;
        facts.ledger = files(&self.scene.runtime_dir());
        facts.receipts = receipts(&self.scene.dir().join("state/leash/receipts.jsonl"));
        self.count(&mut facts);
        facts
    }

    /// Reads the logs of the upstream servers, and closes the books of the episode.
    fn count(&mut self, facts: &mut Facts) {
        let tally = &mut self.tally;
        for (origin, upstream) in &self.upstreams {
            let log = upstream.log();
            // Its own count lacks those whose opener did not wait for the answer.
            tally.sessions.opened += log.ended.len() as u64 + log.lost + log.open.len() as u64;
            tally.sessions.deleted += log.ended.len() as u64;
            tally.sessions.lost += log.lost;
            facts.open.extend(log.open.into_iter().map(|id| (*origin, id)));
            facts.ended.extend(log.ended.into_iter().map(|id| (*origin, id)));
        }
        for (_, id) in &facts.open {
            match facts.left(id) {
                Some(how) => tally.sessions.left.add(how),
                None => tally.sessions.unknown += 1,
            }
        }
        tally.processes = self.seen.len() as u64;
        tally.trees = facts.trees.len() as u64;
        tally.orphaned = facts.trees.values().filter(|harm| harm.is_orphaned()).count() as u64;
        tally.receipts = facts.receipts.len() as u64;
        // With the one who has a server of its own.
        tally.bystanders = self.bystanders.len() as u64 + 1;
    }

    /// Waits until nobody is left but a living gateway and those who may be; who else is.
    fn wait_over(&self, facts: &Facts, patience: Duration) -> Vec<String> {
        let serve = self.serve.as_ref().filter(|serve| serve.is_alive()).map(Gateway::pid);
        let left = || -> Vec<Survivor> {
            let survivors = self.survivors(&Known::new()).into_iter();
            survivors.filter(|one| Some(one.pid) != serve && !facts.may_wait_for_a_sweep(one)).collect()
        };
        match wait::every(LOOK, patience, || left().is_empty().then_some(())) {
            Some(()) => Vec::new(),
            None => left().iter().map(|one| format!("owners are gone, not so {}", one.shown)).collect(),
        }
    }

    fn stop_serve(&mut self, patience: Duration) -> Vec<String> {
        let Some(serve) = self.serve.take() else { return Vec::new() };
        let wrong = stop(serve, "`leash serve`", patience);
        if self.serve_was_struck { Vec::new() } else { wrong }
    }

    /// The next start of leash, which finds what others left.
    fn sweep(&mut self, patience: Duration) -> Vec<String> {
        // Anywhere: the old place may be taken meanwhile.
        let serve = match self.serve_at("127.0.0.1:0") {
            Ok(serve) => serve,
            Err(why) => return vec![format!("the next start of leash failed: {why}")],
        };
        // Its own book is all that there is when it is done, and the record of the resident.
        let books =
            || files(&self.scene.runtime_dir().join("gateways")).iter().filter(|name| name.ends_with(".jsonl")).count();
        let swept = wait::every(LOOK, patience, || (books() <= 1).then_some(()));
        let mut wrong = stop(serve, "the `leash serve` that sweeps", patience);
        if swept.is_none() {
            wrong.push("books of dead gateways stay".to_owned());
        }
        wrong
    }

    fn survivors(&self, recorded: &Known) -> Vec<Survivor> {
        let mut found = self.scene.outer().map(|outer| outer.processes()).unwrap_or_default();
        found.extend(self.scene.witness().holders());
        let mut seen = HashSet::new();
        found.retain(|one| !self.innocent.contains(&(one.pid, one.start)) && seen.insert(one.pid));
        found.iter().map(|one| survivor(one, recorded)).collect()
    }

    /// Members that the ledger knows.
    fn recorded(&self) -> Known {
        let records =
            self.scene.ledger().into_iter().filter(|path| path.extension().is_some_and(|kind| kind == "json"));
        let records = records.filter_map(|path| serde_json::from_slice::<Value>(&fs::read(path).ok()?).ok());
        let members = |record: Value| {
            let mut all = record["members"].as_array().cloned().unwrap_or_default();
            all.push(record["leader"].clone());
            all
        };
        records.flat_map(members).filter_map(|one| Some((one["pid"].as_i64()?, one["start"].as_u64()?))).collect()
    }

    /// The resident works as before and leaves as it should; the others have not noticed anything.
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
        let leash = self.resident.part(super::action::Part::Leash);
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

fn stop(mut serve: Gateway, name: &str, patience: Duration) -> Vec<String> {
    if serve.is_alive() {
        serve.signal(Signal::TERM);
        if !serve.wait_gone(patience) {
            return vec![format!("{name} does not stop: {}", serve.said())];
        }
        if serve.wait() != Some(0) {
            return vec![format!("{name} failed: {}", serve.said())];
        }
    }
    Vec::new()
}

fn survivor(process: &Process, recorded: &Known) -> Survivor {
    let key = (i64::from(process.pid.as_raw_nonzero().get()), process.start);
    Survivor {
        pid: process.pid,
        shown: process.to_string(),
        session: session_of(process),
        recorded: recorded.contains(&key),
    }
}

/// The files below a directory, by their paths in it.
fn files(dir: &Path) -> Vec<String> {
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
    // A line that is no receipt is one of its own, which agrees with nothing.
    text.lines().map(|line| serde_json::from_str(line).unwrap_or(Value::String(line.to_owned()))).collect()
}
