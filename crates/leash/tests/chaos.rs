//! Everything that can happen, for a while, in an order that a fixed seed decides. `cargo xtask chaos` does it for longer, with
//! any seed, and plays a failure again.

use std::time::Duration;

use testkit::chaos::{Options, PATIENCE, Stage};

/// The same in every run: a failure here was made by a change.
const SEED: u64 = 0x001e_a54c_4a05;

/// How long, unless `LEASH_CHAOS_SECONDS` says otherwise.
const SECONDS: u64 = 180;

#[test]
fn promises_are_kept() {
    let wanted = std::env::var("LEASH_CHAOS_SECONDS").ok().and_then(|word| word.parse().ok());
    let time = Duration::from_secs(wanted.unwrap_or(SECONDS));
    let stage = Stage::build(None, &mut testkit::note);
    let options = Options { seed: SEED, first: 0, time, tries: 12, patience: PATIENCE };
    let report = stage.run(&options, &mut testkit::note);
    let failures: Vec<String> = report.failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    testkit::note(&format!("{}; {}; {} trees", report.episodes, report.tally.faults, report.tally.trees));
    assert!(report.unplayed.is_empty(), "not everything could be played: {:?}", report.unplayed);
    // A machine without all of it says so; one that has all of it plays.
    assert!(report.episodes.sum() > 0, "nothing was played: {:?}", report.lacks);
}
