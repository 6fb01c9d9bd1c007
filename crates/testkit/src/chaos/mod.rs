//! Chaos: episodes of random faults in hosts, leash, servers and machines, in an order that a seed decides. After each
//! episode every promise of leash must have been kept.
//!
//! [`plan`] (the actions), [`shrink`](shrink()) and [`promise`] (the expectations) are pure; the rest performs the
//! actions. A failure is a seed, a history and a replay: a text with the fewest actions that still show it, for `cargo
//! xtask chaos --replay FILE`.

pub mod action;
mod actor;
mod attacks;
mod audit;
mod blows;
mod cast;
mod disk;
mod forgery;
mod origin;
pub mod plan;
pub mod promise;
pub mod random;
pub mod shrink;
pub mod tally;
mod world;
mod wounds;

use std::time::Duration;

use plan::{Hold, Offer, Plan};
pub use shrink::shrink;
use tally::{Counts, Tally};
use world::{Unset, World};

use crate::cgroup::PidsBound;
use crate::deps::Deps;
use crate::ground::{Ground, check_namespaces};
use crate::scene::Scene;
use crate::user::{User, Who};
use crate::wait::{Deadline, Stopwatch};

/// No episode should take longer, so a longer one is reported: something may be wrong.
const SLOW: Duration = Duration::from_secs(15);

/// The timeout for the end of everything that should be gone. Beyond every grace, the 20 s after which leash gives up,
/// and the 30 s of a DELETE that is never answered.
pub const PATIENCE: Duration = Duration::from_secs(75);

/// The same while a failure is being shrunk, which was seen once already: beyond the 30 s.
const LESS_PATIENCE: Duration = Duration::from_secs(40);

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed of all random choices.
    pub seed: u64,
    /// The first episode.
    pub first: u64,
    /// The duration of the run: no episode begins after it.
    pub time: Duration,
    /// The most episodes to play in search of the shortest history of a failure.
    pub tries: usize,
    /// The timeout for the end of everything that should be gone; see [`PATIENCE`].
    pub patience: Duration,
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The duration of the run.
    pub time: Duration,
    /// The episodes that were played to their end, by containment and user.
    pub episodes: Counts,
    /// The actions and faults in them.
    pub tally: Tally,
    /// The features that this machine lacks, and why.
    pub lacks: Vec<String>,
    /// The episodes that could not begin although the machine had offered the containment, and why.
    pub unplayed: Vec<String>,
    /// All episodes in which a promise was not kept.
    pub failures: Vec<Failure>,
}

/// An episode in which a promise was not kept.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The whole episode.
    pub plan: Plan,
    /// The promises that were not kept.
    pub complaints: Vec<String>,
    /// The actions and their results.
    pub history: Vec<String>,
    /// The stderr output of leash and the other programs.
    pub said: String,
    /// The fewest actions that were found to show it.
    pub replay: Plan,
}

/// The result of one episode.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The promises that were not kept.
    pub complaints: Vec<String>,
    /// The actions and their results.
    pub history: Vec<String>,
    /// The stderr output of leash and the other programs.
    pub said: String,
    /// The counters.
    pub tally: Tally,
}

impl Outcome {
    /// The outcome of an episode in which leash did not start.
    fn never(why: String) -> Self {
        Self { complaints: vec![why], history: Vec::new(), said: String::new(), tally: Tally::default() }
    }
}

/// The grounds on which episodes are played.
#[derive(Debug)]
pub struct Stage {
    grounds: Vec<(Hold, Who, Ground)>,
    offer: Offer,
    lacks: Vec<String>,
}

impl Stage {
    /// Finds out what this machine offers, and reports what it lacks. For one plan, it only prepares that plan's
    /// ground.
    pub fn build(wanted: Option<&Plan>, say: &mut dyn FnMut(&str)) -> Self {
        let mut lacks = Vec::new();
        let disk = crate::sys::own_mounts();
        if let Err(error) = &disk {
            lacks.push(format!("no disk for the ledger: {error}"));
        }
        if let Err(why) = PidsBound::small(1) {
            lacks.push(format!("no limit on processes: {why}"));
        }
        let namespaces = namespaces();
        if let Err(why) = &namespaces {
            lacks.push(format!("no foreign namespace: {why}"));
        }
        let mut grounds = Vec::new();
        let all = Hold::ALL.iter().flat_map(|hold| [(*hold, Who::Root), (*hold, Who::User)]);
        for (hold, who) in all.filter(|one| wanted.is_none_or(|plan| (plan.hold, plan.who) == *one)) {
            match Ground::prepare(hold.ground(), who) {
                Ok(ground) => grounds.push((hold, who, ground)),
                Err(why) => lacks.push(format!("no {hold} as {}: {why}", plan::name(who))),
            }
        }
        let sdks = Deps::find().inspect_err(|why| lacks.push((*why).to_owned())).is_ok();
        lacks.iter().for_each(|lack| say(lack));
        let offer = Offer { sdks, disk: disk.is_ok(), namespaces: namespaces.is_ok() };
        Self { grounds, offer, lacks }
    }

    /// The features that episodes are drawn from.
    pub fn offer(&self) -> &Offer {
        &self.offer
    }

    fn ground(&self, plan: &Plan) -> Option<&Ground> {
        let found = self.grounds.iter().find(|(hold, who, _)| (*hold, *who) == (plan.hold, plan.who));
        found.map(|(_, _, ground)| ground)
    }

    /// Plays one episode to its end. The error is the reason why the machine does not let it begin. A leash that does
    /// not start is a complaint instead.
    pub fn play(&self, plan: &Plan, patience: Duration) -> Result<Outcome, String> {
        let missing = || format!("no {} as {} here", plan.hold, plan::name(plan.who));
        let mut world = match World::set(plan, self.ground(plan).ok_or_else(missing)?.scene()?) {
            Ok(world) => world,
            Err(Unset::Machine(why)) => return Err(why),
            Err(Unset::Leash(why)) => return Ok(Outcome::never(why)),
        };
        for action in &plan.actions {
            world.act(action);
        }
        let facts = world.finish(patience);
        Ok(Outcome {
            complaints: facts.complaints(),
            history: std::mem::take(&mut world.history),
            said: world.scene.stderr(),
            tally: std::mem::take(&mut world.tally),
        })
    }

    /// Plays episodes until the time is over.
    pub fn run(&self, options: &Options, say: &mut dyn FnMut(&str)) -> Report {
        let (watch, deadline) = (Stopwatch::start(), Deadline::after(options.time));
        let mut report = Report { lacks: self.lacks.clone(), ..Report::default() };
        let mut episode = options.first;
        while !deadline.is_over() && !self.grounds.is_empty() {
            let plan = Plan::draw(options.seed, episode, &self.offer);
            episode += 1;
            // A missing ground was reported when the stage was built.
            if self.ground(&plan).is_some() {
                self.episode(&plan, options, &mut report, say);
            }
            report.time = watch.time();
        }
        report
    }

    /// Plays an episode from a replay file.
    pub fn replay(&self, plan: &Plan, options: &Options, say: &mut dyn FnMut(&str)) -> Report {
        let watch = Stopwatch::start();
        let mut report = Report { lacks: self.lacks.clone(), ..Report::default() };
        self.episode(plan, options, &mut report, say);
        report.time = watch.time();
        report
    }

    /// Plays an episode, and shrinks it if it fails.
    fn episode(&self, plan: &Plan, options: &Options, report: &mut Report, say: &mut dyn FnMut(&str)) {
        let watch = Stopwatch::start();
        let outcome = match self.play(plan, options.patience) {
            Ok(outcome) => outcome,
            Err(why) => {
                say(&format!("episode {} cannot be played: {why}", plan.episode));
                report.unplayed.push(format!("episode {}: {why}", plan.episode));
                return;
            }
        };
        let (actions, seconds) = (plan.actions.len(), watch.time().as_secs_f64());
        let (episode, ground) = (plan.episode, format!("{} as {}", plan.hold, plan::name(plan.who)));
        say(&format!("episode {episode}: {ground}, {actions} actions, {seconds:.1} s"));
        if watch.time() > SLOW {
            outcome.history.iter().for_each(|line| say(&format!("slow: {line}")));
        }
        report.episodes.add(ground);
        report.tally.extend(&outcome.tally);
        if outcome.complaints.is_empty() {
            return;
        }
        say(&format!("it failed: {}", outcome.complaints.join("; ")));
        let patience = options.patience.min(LESS_PATIENCE);
        let fails = |actions: &[action::Action]| {
            self.play(&plan.with(actions.to_vec()), patience).is_ok_and(|again| !again.complaints.is_empty())
        };
        let replay = plan.with(shrink(&plan.actions, options.tries, fails));
        report.failures.push(Failure {
            plan: plan.clone(),
            complaints: outcome.complaints,
            history: outcome.history,
            said: outcome.said,
            replay,
        });
    }
}

/// Checks that every user that plays on this machine can make a PID namespace.
fn namespaces() -> Result<(), String> {
    let users = [Who::Root, Who::User].into_iter().filter(|who| User::find(*who).is_ok());
    users.map(Scene::set).try_for_each(|scene| check_namespaces(&scene?))
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "seed {}, episode {}:", self.plan.seed, self.plan.episode)?;
        self.complaints.iter().try_for_each(|complaint| writeln!(f, "  {complaint}"))?;
        writeln!(
            f,
            "what happened ({} as {}, grace of serve {} ms):",
            self.plan.hold,
            plan::name(self.plan.who),
            self.plan.grace
        )?;
        self.history.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        let said: Vec<&str> = self.said.lines().collect();
        said[said.len().saturating_sub(40)..].iter().try_for_each(|line| writeln!(f, "  said: {line}"))?;
        writeln!(f, "a shorter one that shows it (`cargo xtask chaos --replay FILE`):\n{}", self.replay)
    }
}
