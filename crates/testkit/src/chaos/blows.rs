//! Signals and resource limits for the processes of an episode.

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};

use super::action::{Blow, Part, Scarce};
use super::actor::{descendants, is_keeper_of_sessions};
use super::world::World;
use crate::cgroup::PidsBound;
use crate::process::{Handle, Process, children};

impl World {
    /// Sends a signal to all of them at the same moment.
    pub(crate) fn strike(&mut self, blow: Blow, parts: &[(u32, Part)]) -> String {
        self.look();
        let found: Vec<((u32, Part), Handle)> =
            parts.iter().filter_map(|whom| Some((*whom, self.part(*whom)?))).collect();
        for (whom, handle) in &found {
            self.hit(blow, *whom, handle.pid());
        }
        if found.len() > 1 {
            self.tally.faults.add("several at once");
        }
        let mut came = String::new();
        for ((_, part), handle) in found {
            let sent = handle.signal(signal(blow));
            self.tally.faults.add(format_args!("{blow} {part}"));
            let refused = if sent.is_ok() { "" } else { "refused " };
            came.push_str(&format!("{part} {} {refused}", handle.pid().as_raw_nonzero()));
            if blow == Blow::Stop {
                self.stopped.push(handle);
            }
        }
        if came.is_empty() { "no such process".to_owned() } else { came }
    }

    /// Limits a resource of a running process, until [`World::release`].
    pub(crate) fn squeeze(&mut self, whom: (u32, Part), scarce: Scarce, most: u64) -> String {
        let (part, Some(handle)) = (whom.1, self.part(whom)) else { return "no such process".to_owned() };
        let pid = handle.pid();
        let done = match scarce {
            Scarce::Nothing => return "done".to_owned(),
            // A limit above the number of open descriptors changes nothing; below it no new one can be opened.
            Scarce::Descriptors => self.limit(pid, Some(most)).map(|()| Some(most)).map_err(|error| error.to_string()),
            Scarce::Processes => PidsBound::small(most).and_then(|bound| {
                bound.take(pid).map_err(|error| error.to_string())?;
                self.bounds.push(bound);
                Ok(None)
            }),
        };
        match done {
            Ok(descriptors) => self.squeezed(whom, handle, descriptors),
            Err(why) => return why,
        }
        self.tally.faults.add(format_args!("{part} short of {scarce}"));
        format!("{part} {}", pid.as_raw_nonzero())
    }

    /// Lifts the limits of all squeezed processes.
    pub(crate) fn release(&mut self) {
        for one in std::mem::take(&mut self.squeezed) {
            // After the exit of the process its pid may belong to another one.
            if one.handle.is_alive() {
                let _ = self.limit(one.handle.pid(), None);
            }
        }
        for bound in &self.bounds {
            let _ = bound.lift();
        }
    }

    /// Sets the descriptor limit of a running process. The hard limit stays unchanged, so that lifting the soft limit
    /// needs no privilege. The call is made as the user of the process, so that it needs no privilege either.
    fn limit(&self, pid: Pid, most: Option<u64>) -> std::io::Result<()> {
        let maximum = getrlimit(Resource::Nofile).maximum;
        let limit = Rlimit { current: most.or(maximum), maximum };
        self.scene.user().act(|| prlimit(Some(pid), Resource::Nofile, limit))?;
        Ok(())
    }

    /// One of an actor's processes, if it exists: its own, or one of the gateway that it uses.
    pub(crate) fn part(&mut self, (actor, part): (u32, Part)) -> Option<Handle> {
        let actor = self.actors.get_mut(&actor)?;
        actor.look();
        if part == Part::Host || !actor.start.route.is_http() {
            return actor.part(part);
        }
        let serve = self.serve.as_ref()?.pid();
        let (number, is_upstream) = (actor.start.actor as usize, actor.start.route.has_upstream());
        let choose = |wanted: Vec<Process>| {
            let chosen = wanted.get(number % wanted.len().max(1))?;
            Handle::open(chosen.pid, |now| now.start == chosen.start)
        };
        let below = |all: &[Process]| all.iter().flat_map(|one| children(one.pid)).collect::<Vec<_>>();
        let (keepers, supervisors): (Vec<_>, Vec<_>) = children(serve).into_iter().partition(is_keeper_of_sessions);
        match part {
            Part::Host => None,
            Part::Leash => Handle::open(serve, |_| true),
            Part::Supervisor => choose(supervisors),
            Part::Keeper if is_upstream => choose(keepers),
            Part::Keeper => choose(below(&supervisors)),
            Part::Leader => choose(below(&below(&supervisors))),
            Part::Member => choose(below(&supervisors).iter().flat_map(|keeper| descendants(keeper.pid)).collect()),
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
