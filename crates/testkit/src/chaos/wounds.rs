//! The faults, as far as they excuse a broken promise. Each is noted before it is caused.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;

use rustix::process::Pid;

use super::action::{Blow, Origin, Part, Route, Scarce, Start};
use super::actor::{Actor, descendants};
use super::audit::panics;
use super::origin::Upstream;
use super::promise::Wounds;
use super::world::{World, session_of};
use crate::gateway::Gateway;
use crate::process::{Handle, Process};
use crate::wait::Stopwatch;

/// The number of descriptors that a leash may need at once beyond its open ones: for connections, and for files that it
/// writes.
const SPARE: u64 = 8;

/// A process that has too few descriptors for a while.
#[derive(Debug)]
pub(crate) struct Squeezed {
    pub(crate) handle: Handle,
    /// The leash that may be unable to open a connection because of that, and its limit.
    pub(crate) mute: Option<(String, u64)>,
}

impl World {
    /// The faults of the leash with this name.
    pub(crate) fn wounds(&mut self, opener: &str) -> &mut Wounds {
        let is_gateway = opener.starts_with("serve");
        self.openers.entry(opener.to_owned()).or_insert_with(|| Wounds { is_gateway, ..Wounds::default() })
    }

    /// The name of the current gateway.
    pub(crate) fn gateway_name(&self) -> String {
        format!("serve-{}", self.generation)
    }

    /// The name by which upstream servers know all gateways that had the same configuration, each in the place of a
    /// killed one.
    pub(crate) fn epoch_name(&self) -> String {
        format!("serve-{}", self.epoch)
    }

    /// The name by which they know the leash on an actor's route. `None` if no leash on it keeps a book of sessions.
    pub(crate) fn opener(&self, start: &Start) -> Option<String> {
        match start.route {
            Route::Connect | Route::ConnectServe => Some(format!("connect-{}", start.actor)),
            Route::ServeHttp => Some(self.gateway_name()),
            Route::Run | Route::ServeStdio => None,
        }
    }

    pub(crate) fn is_serve(&self, pid: Pid) -> bool {
        self.serve.as_ref().is_some_and(|serve| serve.pid() == pid)
    }

    /// The leash that opens upstream sessions and that a process of an actor belongs to.
    pub(crate) fn owner_of(&self, actor: u32, part: Part, pid: Pid) -> Option<String> {
        if self.is_serve(pid) {
            return Some(self.gateway_name());
        }
        let start = &self.actors.get(&actor)?.start;
        if start.route == Route::ServeHttp && part == Part::Keeper {
            return Some(self.gateway_name());
        }
        let connects = matches!(start.route, Route::Connect | Route::ConnectServe);
        let is_its_own = connects && matches!(part, Part::Leash | Part::Keeper);
        is_its_own.then(|| self.opener(start)).flatten()
    }

    /// Notes a signal that is about to be sent to an actor's process.
    pub(crate) fn hit(&mut self, blow: Blow, (actor, part): (u32, Part), pid: Pid) {
        if blow == Blow::Kill {
            self.harm(part, pid);
            self.was_hurt |= matches!(part, Part::Leash | Part::Supervisor | Part::Keeper);
        }
        let Some(opener) = self.owner_of(actor, part, pid) else { return };
        self.hit_opener(&opener, blow, part);
    }

    /// The same for a leash that opens upstream sessions, or its keeper.
    pub(crate) fn hit_opener(&mut self, opener: &str, blow: Blow, part: Part) {
        self.was_hurt |= blow == Blow::Kill;
        let wounds = self.wounds(opener);
        let is_stop = matches!(blow, Blow::Term | Blow::Int) || blow == Blow::Hup && !wounds.is_gateway;
        match part {
            Part::Keeper => wounds.keeper |= blow == Blow::Kill,
            _ if blow == Blow::Kill => wounds.leash = true,
            // A keeper ignores these signals, and a gateway reloads its configuration at SIGHUP.
            _ if is_stop => wounds.stops += 1,
            _ => {}
        }
        // After a second signal leash does not wait for a session that is being opened.
        if part != Part::Keeper && (blow == Blow::Kill || is_stop && self.wounds(opener).stops > 1) {
            self.doubt(|actor| actor.opener.as_deref() == Some(opener));
        }
    }

    /// Notes the ancestors of a process of a tree.
    pub(crate) fn note_above(&mut self, all: &[Process], process: &Process, session: &str) {
        let mut above = process.parent;
        while let Some(parent) = all.iter().find(|one| one.pid.as_raw_nonzero().get() == above) {
            // The ancestors of a known process were noted before.
            if !self.below.entry(parent.pid).or_default().insert(session.to_owned()) {
                return;
            }
            above = parent.parent;
        }
    }

    /// The trees below a process. Includes trees that died a moment ago, because the process still has to write their
    /// receipts.
    fn trees_below(&self, pid: Pid) -> BTreeSet<String> {
        let known = self.below.get(&pid).into_iter().flatten().cloned();
        known.chain(descendants(pid).iter().filter_map(session_of)).collect()
    }

    /// Notes for the trees below a process that it is about to be killed.
    pub(crate) fn harm(&mut self, part: Part, pid: Pid) {
        // A gateway does not look after trees itself: each has a supervisor and a keeper, as with `leash run`.
        if !matches!(part, Part::Leash | Part::Supervisor | Part::Keeper) || self.is_serve(pid) {
            return;
        }
        for session in self.trees_below(pid) {
            let harm = self.trees.entry(session).or_default();
            match part {
                Part::Keeper => harm.keeper = true,
                _ => harm.leash = true,
            }
        }
    }

    /// Notes a doubt for each matching actor that waits for its session now: one may be opened whose id only the server
    /// knows.
    pub(crate) fn doubt(&mut self, is_hit: impl Fn(&Actor) -> bool) {
        let restarts = &self.restarts;
        for actor in self.actors.values_mut().filter(|actor| actor.opener.is_some() && is_hit(actor)) {
            actor.hear();
            // `leash connect` opens another session by itself when the server has lost the first.
            let now = restarts.get(&actor.start.origin).copied().unwrap_or_default();
            actor.reopening_is_doubted |= actor.start.route == Route::Connect && now > actor.restarts;
            actor.is_doubted |= actor.up.is_none();
        }
    }

    /// The actors that wait for a session at a server now.
    pub(crate) fn waiting_for(&mut self, origin: Origin) -> Vec<u32> {
        let actors = self.actors.iter_mut().filter(|(_, actor)| actor.opener.is_some() && actor.start.origin == origin);
        let waits = |(id, actor): (&u32, &mut Actor)| {
            actor.hear();
            actor.up.is_none().then_some(*id)
        };
        actors.filter_map(waits).collect()
    }

    /// The same for the actors that wait for a server.
    pub(crate) fn doubt_origin(&mut self, origin: Origin) {
        self.doubt(|actor| actor.start.origin == origin);
    }

    /// Makes a server unreachable.
    pub(crate) fn lose(&mut self, origin: Origin) -> String {
        if self.unreached.contains_key(&origin) {
            return "it is so already".to_owned();
        }
        self.doubt_origin(origin);
        self.tally.faults.add("upstream out of reach");
        self.unreached.insert(origin, Stopwatch::start());
        self.upstreams.get(&origin).into_iter().for_each(Upstream::down);
        "done".to_owned()
    }

    /// Makes it reachable again.
    pub(crate) fn regain(&mut self, origin: Origin) -> String {
        let Some(since) = self.unreached.remove(&origin) else { return "it is so already".to_owned() };
        self.upstreams.get(&origin).into_iter().for_each(Upstream::up);
        *self.outages.entry(origin).or_default() += since.time();
        "done".to_owned()
    }

    /// Counts the doubts. An actor that did get its session has none.
    pub(crate) fn count_doubts(&mut self) {
        let doubts = |actor: &Actor| {
            usize::from(actor.is_doubted && actor.up != Some(true)) + usize::from(actor.reopening_is_doubted)
        };
        let all = self.actors.values().filter_map(|actor| Some((actor.opener.clone()?, doubts(actor))));
        for (opener, doubts) in all.collect::<Vec<_>>() {
            self.wounds(&opener).doubts += doubts;
        }
    }

    /// Notes that a process is short of a resource from now on. `descriptors` is its limit on descriptors, if it has
    /// one.
    pub(crate) fn squeezed(&mut self, (actor, part): (u32, Part), handle: Handle, descriptors: Option<u64>) {
        self.was_hurt = true;
        let pid = handle.pid();
        let opener = self.owner_of(actor, part, pid);
        if let Some(opener) = &opener {
            self.wounds(opener).short = true;
            if part == Part::Leash {
                self.doubt(|actor| actor.opener.as_deref() == Some(opener));
            }
        }
        let mute = opener.filter(|_| part == Part::Leash).zip(descriptors);
        self.squeezed.push(Squeezed { handle, mute });
        self.look_at_short();
    }

    /// Notes the trees of actors that are short of a resource, and the leashes that could not open a connection because
    /// they had too few descriptors.
    pub(crate) fn look_at_short(&mut self) {
        let scarce = self.actors.values().filter(|actor| actor.start.scarce.0 != Scarce::Nothing);
        let mut short: Vec<Pid> = scarce.filter_map(Actor::leash).collect();
        let mut mute = Vec::new();
        for one in self.squeezed.iter().filter(|one| one.handle.is_alive()) {
            short.push(one.handle.pid());
            if let Some((opener, most)) = &one.mute
                && open_descriptors(one.handle.pid()).is_some_and(|open| open + SPARE > *most)
            {
                mute.push(opener.clone());
            }
        }
        for session in short.iter().flat_map(|pid| self.trees_below(*pid)).collect::<Vec<_>>() {
            self.trees.entry(session).or_default().short = true;
        }
        mute.iter().for_each(|opener| self.wounds(opener).mute = true);
    }

    /// True if an actor that starts now, and is waited for, has to come up.
    pub(crate) fn must_come_up(&self, start: &Start) -> bool {
        let wounds = self.openers.get(&self.gateway_name()).copied().unwrap_or_default();
        let serves = || {
            let is_well = self.serve.as_ref().is_some_and(Gateway::is_alive) && !self.serve_is_stopped();
            // A killed gateway needs a moment to exit.
            is_well && !wounds.leash && !wounds.short && wounds.stops == 0
        };
        let is_rich = start.scarce.0 == Scarce::Nothing && !self.disk_is_bad();
        let reaches = !start.route.has_upstream() || !self.unreached.contains_key(&start.origin);
        !start.hurry && is_rich && reaches && (!start.route.uses_serve() || serves())
    }

    /// A gateway that is gone must have been told to end, and must have exited properly.
    pub(crate) fn check_serve(&mut self) {
        let Some(mut serve) = self.serve.take_if(|serve| !serve.is_alive()) else { return };
        let wounds = *self.wounds(&self.gateway_name());
        self.wrong.extend(panics(&serve.said()));
        if wounds.leash {
            return;
        }
        let (code, said) = (serve.wait(), serve.said());
        if wounds.stops == 0 {
            self.wrong.push(format!("`leash serve` died by itself with {code:?}: {said}"));
        } else if code != Some(0) && !wounds.short {
            self.wrong.push(format!("`leash serve` failed with {code:?}: {said}"));
        }
    }

    /// A gateway that did not start again is a complaint, unless another process has its port, or it cannot write its
    /// ledger.
    pub(crate) fn check_restart(&mut self, why: &str) {
        if !self.disk_is_bad() && TcpListener::bind(&self.listen).is_ok() {
            self.wrong.push(format!("`leash serve` does not come back: {}", why.trim_end()));
        }
    }

    /// True if no new file can be written in the runtime directory.
    pub(crate) fn disk_is_bad(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| !disk.is_good())
    }
}

fn open_descriptors(pid: Pid) -> Option<u64> {
    Some(fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).ok()?.count() as u64)
}
