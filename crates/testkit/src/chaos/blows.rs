//! What hits those who are in the world: signals, and having too little of something.

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};

use super::action::{Blow, Part, Scarce};
use super::actor::descendants;
use super::world::{World, session_of};
use crate::cgroup::PidsBound;
use crate::process::{Handle, Process, children};

impl World {
    /// Sends a signal to all of them, in one moment.
    pub(crate) fn strike(&mut self, blow: Blow, parts: &[(u32, Part)]) -> String {
        self.look();
        let found: Vec<(Part, Handle)> =
            parts.iter().filter_map(|(actor, part)| Some((*part, self.part(*actor, *part)?))).collect();
        if blow == Blow::Kill {
            for (part, handle) in &found {
                self.harm(*part, handle.pid());
            }
        }
        if found.len() > 1 {
            self.tally.faults.add("several at once");
        }
        let mut came = String::new();
        for (part, handle) in found {
            self.serve_was_struck |= self.serve.as_ref().is_some_and(|serve| serve.pid() == handle.pid());
            let sent = handle.signal(signal(blow));
            self.tally.faults.add(format_args!("{blow} {part}"));
            let refused = if sent.is_ok() { "" } else { "refused " };
            came.push_str(&format!("{part} {} {refused}", handle.pid().as_raw_nonzero()));
            if blow == Blow::Stop {
                self.stopped.push(handle);
            }
        }
        if came.is_empty() { "nobody".to_owned() } else { came }
    }

    /// Leaves a running process so much of something, until [`World::release`].
    pub(crate) fn squeeze(&mut self, (actor, part): (u32, Part), scarce: Scarce, most: u64) -> String {
        let Some(handle) = self.part(actor, part) else { return "nobody".to_owned() };
        let pid = handle.pid();
        let done = match scarce {
            Scarce::Nothing => return "done".to_owned(),
            // Above the number of those that are open it changes nothing, below it there is no new one.
            Scarce::Descriptors => self.limit(pid, Some(most)).map_err(|error| error.to_string()),
            Scarce::Processes => PidsBound::small(most).and_then(|bound| {
                bound.take(pid).map_err(|error| error.to_string())?;
                self.bounds.push(bound);
                Ok(())
            }),
        };
        if let Err(why) = done {
            return why;
        }
        if part == Part::Leash {
            self.doubt();
            self.serve_was_struck |= self.serve.as_ref().is_some_and(|serve| serve.pid() == pid);
            self.was_mute |= scarce == Scarce::Descriptors;
        }
        self.tally.faults.add(format_args!("{part} short of {scarce}"));
        self.squeezed.push(handle);
        format!("{part} {}", pid.as_raw_nonzero())
    }

    /// Everybody who was squeezed has enough again.
    pub(crate) fn release(&mut self) {
        for handle in std::mem::take(&mut self.squeezed) {
            let _ = self.limit(handle.pid(), None);
        }
        for bound in &self.bounds {
            let _ = bound.lift();
        }
    }

    /// How many descriptors a process that runs may have. The hard limit stays what it is for all of us, so that it needs no
    /// privilege to lift the other again; and it is done by the user of the process, whom the kernel does not ask for one.
    fn limit(&self, pid: Pid, most: Option<u64>) -> std::io::Result<()> {
        let maximum = getrlimit(Resource::Nofile).maximum;
        let limit = Rlimit { current: most.or(maximum), maximum };
        self.scene.user().act(|| prlimit(Some(pid), Resource::Nofile, limit))?;
        Ok(())
    }

    /// One of an actor's processes, where there is one: its own, or one of those of the gateway that it uses.
    fn part(&mut self, actor: u32, part: Part) -> Option<Handle> {
        let actor = self.actors.get_mut(&actor)?;
        actor.look();
        if part == Part::Host || !actor.start.route.is_http() {
            return actor.part(part);
        }
        let serve = self.serve.as_ref()?.pid();
        let number = actor.start.actor as usize;
        let choose = |wanted: Vec<Process>| {
            let chosen = wanted.get(number % wanted.len().max(1))?;
            Handle::open(chosen.pid, |now| now.start == chosen.start)
        };
        let below = |all: &[Process]| all.iter().flat_map(|one| children(one.pid)).collect::<Vec<_>>();
        let supervisors = children(serve);
        match part {
            Part::Host => None,
            Part::Leash => Handle::open(serve, |_| true),
            Part::Supervisor => choose(supervisors),
            Part::Keeper => choose(below(&supervisors)),
            Part::Leader => choose(below(&below(&supervisors))),
            Part::Member => choose(below(&supervisors).iter().flat_map(|keeper| descendants(keeper.pid)).collect()),
        }
    }

    /// Notes who is about to be killed, for the trees below and for what may be under way.
    pub(crate) fn harm(&mut self, part: Part, pid: Pid) {
        // A gateway leaves a tree to two who look after it, as `leash run` and its keeper do.
        let is_serve = self.serve.as_ref().is_some_and(|serve| serve.pid() == pid);
        if matches!(part, Part::Leash | Part::Supervisor | Part::Keeper) && !is_serve {
            for session in descendants(pid).iter().filter_map(session_of) {
                let harm = self.trees.entry(session).or_default();
                match part {
                    Part::Keeper => harm.keeper = true,
                    _ => harm.leash = true,
                }
            }
        }
        if part == Part::Leash {
            self.doubt();
        }
    }

    /// Whoever waits at this moment for a session to be opened may get one that nobody but its server hears of.
    pub(crate) fn doubt(&mut self) {
        for actor in self.actors.values_mut().filter(|actor| actor.start.route.has_upstream()) {
            actor.hear();
            actor.is_doubted |= !actor.up;
        }
    }
}

pub(crate) fn signal(blow: Blow) -> Signal {
    match blow {
        Blow::Term => Signal::TERM,
        Blow::Int => Signal::INT,
        Blow::Hup => Signal::HUP,
        Blow::Kill => Signal::KILL,
        Blow::Stop => Signal::STOP,
        Blow::Cont => Signal::CONT,
    }
}
