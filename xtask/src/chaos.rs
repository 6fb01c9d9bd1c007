//! `cargo xtask chaos`: everything that can happen to leash, in an order that a seed decides.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::chaos::plan::Plan;
use testkit::chaos::{Failure as Broken, Options, Report, Stage};

use crate::setup;
use crate::step::{Failure, Outcome, Step, Workspace, say};

/// Says to this program, given the programs to try, that it shall play.
const PLAY: &str = "--play";

const USAGE: &str = "chaos has --minutes N, --seed N, --episode N (the first one), --tries N, --replay FILE and --json";

/// Enough to halve twenty actions down to a few, each of which is an episode of some seconds.
const TRIES: usize = 60;

/// What the command line asked for.
#[derive(Debug, PartialEq)]
struct Order {
    minutes: f64,
    seed: Option<u64>,
    episode: Option<u64>,
    tries: usize,
    replay: Option<String>,
    json: bool,
    play: bool,
}

impl Order {
    fn parse(words: &[String]) -> Outcome<Self> {
        let mut order =
            Self { minutes: 3.0, seed: None, episode: None, tries: TRIES, replay: None, json: false, play: false };
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            match word {
                "--json" => order.json = true,
                PLAY => order.play = true,
                "--minutes" => order.minutes = value(words.next())?,
                "--seed" => order.seed = Some(value(words.next())?),
                "--episode" => order.episode = Some(value(words.next())?),
                "--tries" => order.tries = value(words.next())?,
                "--replay" => order.replay = Some(value(words.next())?),
                _ => return Err(Failure::new(USAGE)),
            }
        }
        match order.minutes.is_finite() && order.minutes >= 0.0 {
            true => Ok(order),
            false => Err(Failure::new(USAGE)),
        }
    }
}

fn value<T: std::str::FromStr>(word: Option<&str>) -> Outcome<T> {
    word.and_then(|word| word.parse().ok()).ok_or_else(|| Failure::new(USAGE))
}

pub(crate) fn run(workspace: &Workspace, words: &[String]) -> Outcome {
    let order = Order::parse(words)?;
    if order.play {
        return play(workspace, &order);
    }
    let deps = setup::install(workspace)?;
    workspace.cargo(["build", "--release", "--package", "mcp-leash", "--package", "testkit", "--bins"]).run()?;
    workspace.fixture().run()?;
    let this = std::env::current_exe().map_err(Failure::at(Path::new("xtask")))?;
    Step::new(this).args(["chaos", PLAY]).args(words).envs(&workspace.programs()).envs(&deps.variables()).run()
}

fn play(workspace: &Workspace, order: &Order) -> Outcome {
    let mut tell = |text: &str| say("Chaos", text);
    let stage = Stage::build(&mut tell);
    let seed = order.seed.unwrap_or_else(testkit::random);
    let time = Duration::from_secs_f64(order.minutes * 60.0);
    let options = Options { seed, first: order.episode.unwrap_or(0), time, tries: order.tries };
    let report = match &order.replay {
        Some(file) => {
            let text = fs::read_to_string(file).map_err(Failure::at(Path::new(file)))?;
            let plan: Plan = text.parse().map_err(Failure::new)?;
            let mut report = Report::default();
            stage.episode(&plan, &options, &mut report, &mut tell);
            report
        }
        None => {
            tell(&format!("seed {seed}, {} minutes", order.minutes));
            stage.run(&options, &mut tell)
        }
    };
    show(workspace, order, seed, &report)
}

fn show(workspace: &Workspace, order: &Order, seed: u64, report: &Report) -> Outcome {
    match order.json {
        true => println!("{:#}", as_json(seed, report)),
        false => println!("{}", as_text(seed, report)),
    }
    let dir = workspace.target.join("chaos");
    fs::create_dir_all(&dir).map_err(Failure::at(&dir))?;
    for failure in &report.failures {
        let file = dir.join(format!("{}-{}.replay", failure.plan.seed, failure.plan.episode));
        fs::write(&file, failure.replay.to_string()).map_err(Failure::at(&file))?;
        eprintln!("{failure}");
        say("Wrote", file.display());
    }
    match (report.failures.len(), report.episodes.is_empty()) {
        (0, false) => Ok(()),
        (0, true) => Err(Failure::new("no episode could be played")),
        (failed, _) => Err(Failure::new(format!("promises were broken in {failed} episodes"))),
    }
}

fn as_text(seed: u64, report: &Report) -> String {
    let rows: String = report.episodes.iter().map(|(ground, count)| format!("| {ground} | {count} |\n")).collect();
    format!(
        "| containment | episodes |\n|---|---|\n{rows}\nseed {seed}: {} episodes, {} actions, {} trees ({} lost leash and keeper), {} \
         upstream sessions; {} could not be played, {} failed",
        report.episodes.values().sum::<u64>(),
        report.actions,
        report.trees,
        report.orphaned,
        report.sessions,
        report.unplayed.len(),
        report.failures.len(),
    )
}

fn as_json(seed: u64, report: &Report) -> Value {
    let failure = |failure: &Broken| {
        json!({
            "episode": failure.plan.episode,
            "complaints": failure.complaints,
            "history": failure.history,
            "replay": failure.replay.to_string(),
        })
    };
    json!({
        "seed": seed,
        "episodes": report.episodes,
        "actions": report.actions,
        "trees": report.trees,
        "orphaned": report.orphaned,
        "upstreamSessions": report.sessions,
        "unplayed": report.unplayed,
        "failures": report.failures.iter().map(failure).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Order, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Order::parse(&words).map_err(|failure| failure.to_string())
    }

    #[test]
    fn an_order_is_what_was_said() {
        let order = parse("--minutes 0.5 --seed 7 --episode 3 --json --tries 9").expect("a good order");
        let expected =
            Order { minutes: 0.5, seed: Some(7), episode: Some(3), tries: 9, replay: None, json: true, play: false };
        assert_eq!(order, expected);
        assert_eq!(parse("--replay x").expect("a good order").replay.as_deref(), Some("x"));
    }

    #[test]
    fn what_is_no_order_is_refused() {
        for line in ["--minutes", "--minutes x", "--minutes -1", "--minutes NaN", "--seed -1", "dance"] {
            assert_eq!(parse(line), Err(USAGE.to_owned()), "{line}");
        }
    }
}
