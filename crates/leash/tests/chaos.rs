//! Random faults for a while, in an order that a fixed seed decides. `cargo xtask chaos` does it for longer, with any
//! seed, and replays a failure.

use std::time::Duration;

use testkit::cgroup::PidsBound;
use testkit::chaos::plan::{Offer, Plan};
use testkit::chaos::{Options, PATIENCE, Stage};
use testkit::user::Who;

/// The same in every run: a failure here was caused by a change.
const SEED: u64 = 0x001e_a54c_4a05;

/// The duration, unless `LEASH_CHAOS_SECONDS` sets it.
const SECONDS: u64 = 180;

#[test]
fn chaos_finds_no_broken_promise() {
    let wanted = std::env::var("LEASH_CHAOS_SECONDS").ok().and_then(|word| word.parse().ok());
    let time = Duration::from_secs(wanted.unwrap_or(SECONDS));
    let stage = Stage::build(None, &mut testkit::note);
    let options = Options { seed: SEED, first: 0, time, tries: 12, patience: PATIENCE };
    let report = stage.run(&options, &mut testkit::note);
    let failures: Vec<String> = report.failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    testkit::note(&format!("{}; {}; {} trees", report.episodes, report.tally.faults, report.tally.trees));
    assert!(report.unplayed.is_empty(), "not everything could be played: {:?}", report.unplayed);
    // A machine that lacks features reports them; at least one episode must be played.
    assert!(report.episodes.sum() > 0, "nothing was played: {:?}", report.lacks);
}

/// About as many episodes as fit into the time: each of the attacks is among them.
#[test]
fn the_first_episodes_have_every_attack() {
    let offer = Offer { sdks: true, disk: true, namespaces: true };
    let text: String = (0..40).map(|episode| Plan::draw(SEED, episode, &offer).to_string()).collect();
    let attacks = [" over\n", " over-kept\n", " fifo", " wrong-", "\nstarve ", "\ntrace ", "\nforce ", "\nvisit "];
    let servers = [" headless ", " headless-member ", " foreign ", "restart-serve KILL"];
    for word in attacks.iter().chain(&servers) {
        assert!(text.contains(word), "never: {word}");
    }
}

/// A gateway cannot start a thread after its idle worker threads have exited. It must live, start nothing, pass on
/// requests that need no thread, and notice that its clients are gone.
#[test]
fn a_gateway_that_gets_no_thread_lives_on() {
    testkit::or_skip!(PidsBound::small(1));
    check(
        "start 0 pipe serve-stdio polite honest grace=50 nothing=0 wait\n\
         pause 1500\n\
         squeeze 0:leash processes=1\n\
         start 1 pipe serve-stdio chain honest grace=50 nothing=0 wait\n\
         start 2 pipe serve-http chain honest grace=50 nothing=0 wait\n\
         call 2\n",
    );
}

/// Replays a former failure with the containment `reaper`, which works everywhere.
#[track_caller]
fn check(actions: &str) {
    let who = if Who::me() == Who::Root { "root" } else { "user" };
    let plan = format!("chaos 1 seed=1 episode=1 reaper {who} grace=50\n{actions}").parse().expect("a plan");
    let stage = Stage::build(Some(&plan), &mut testkit::note);
    let options = Options { seed: 1, first: 1, time: Duration::ZERO, tries: 0, patience: PATIENCE };
    let report = stage.replay(&plan, &options, &mut testkit::note);
    let failures: Vec<String> = report.failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(report.episodes.sum(), 1, "not played: {:?}", report.unplayed);
}
