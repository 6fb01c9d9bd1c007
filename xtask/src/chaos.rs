//! `cargo xtask chaos`: random faults in everything around leash, in an order that a seed decides.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::chaos::plan::Plan;
use testkit::chaos::{Failure as Broken, Options, PATIENCE, Report, Stage};

use crate::setup;
use crate::step::{Failure, Outcome, PLAY, Step, Workspace, say, value};

const USAGE: &str = "chaos has --minutes N, --seed N, --episode N (the first one), --tries N, --patience SECONDS, --replay FILE and --json";

/// Enough to shrink twenty actions to a few. Each try is an episode of some seconds.
const TRIES: usize = 60;

/// The parsed command line.
#[derive(Debug, PartialEq)]
struct Order {
    minutes: f64,
    seed: Option<u64>,
    episode: Option<u64>,
    tries: usize,
    patience: u64,
    replay: Option<String>,
    json: bool,
    play: bool,
}

impl Order {
    fn parse(words: &[String]) -> Outcome<Self> {
        let mut order = Self {
            minutes: 3.0,
            seed: None,
            episode: None,
            tries: TRIES,
            patience: PATIENCE.as_secs(),
            replay: None,
            json: false,
            play: false,
        };
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            match word {
                "--json" => order.json = true,
                PLAY => order.play = true,
                "--minutes" => order.minutes = value(words.next(), USAGE)?,
                "--seed" => order.seed = Some(value(words.next(), USAGE)?),
                "--episode" => order.episode = Some(value(words.next(), USAGE)?),
                "--tries" => order.tries = value(words.next(), USAGE)?,
                "--patience" => order.patience = value(words.next(), USAGE)?,
                "--replay" => order.replay = Some(value(words.next(), USAGE)?),
                _ => return Err(Failure::new(USAGE)),
            }
        }
        match order.minutes.is_finite() && order.minutes >= 0.0 {
            true => Ok(order),
            false => Err(Failure::new(USAGE)),
        }
    }
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
    let replay = order.replay.as_deref().map(read).transpose()?;
    let stage = Stage::build(replay.as_ref(), &mut tell);
    let drawn = || replay.as_ref().map_or_else(testkit::random, |plan| plan.seed);
    let seed = order.seed.unwrap_or_else(drawn);
    let time = Duration::from_secs_f64(order.minutes * 60.0);
    let patience = Duration::from_secs(order.patience);
    let options = Options { seed, first: order.episode.unwrap_or(0), time, tries: order.tries, patience };
    let report = match &replay {
        Some(plan) => stage.replay(plan, &options, &mut tell),
        None => {
            tell(&format!("seed {seed}, {} minutes", order.minutes));
            stage.run(&options, &mut tell)
        }
    };
    show(workspace, order, seed, &report)
}

fn read(file: &str) -> Outcome<Plan> {
    let text = fs::read_to_string(file).map_err(Failure::at(Path::new(file)))?;
    text.parse().map_err(|why: String| Failure::new(format!("{file}: {why}")))
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
    let file = dir.join("chaos.json");
    fs::write(&file, format!("{:#}\n", as_json(seed, report))).map_err(Failure::at(&file))?;
    verdict(report)
}

/// An episode that was not played proves nothing, so it is not a success.
fn verdict(report: &Report) -> Outcome {
    match (report.failures.len(), report.unplayed.len(), report.episodes.sum()) {
        (0, 0, 1..) => Ok(()),
        (0, 0, 0) => Err(Failure::new("no episode could be played")),
        (0, unplayed, _) => Err(Failure::new(format!("{unplayed} episodes could not be played"))),
        (failed, _, _) => Err(Failure::new(format!("promises were broken in {failed} episodes"))),
    }
}

fn as_text(seed: u64, report: &Report) -> String {
    let tally = &report.tally;
    let sessions = &tally.sessions;
    let upstream = format!(
        "{} opened: {} ended by DELETE, {} lost with their server, {} left with a reason in a receipt ({}), {} known only to their server \
         (hit while they were opened)",
        sessions.opened,
        sessions.deleted,
        sessions.lost,
        sessions.left.sum(),
        sessions.left,
        sessions.unknown,
    );
    let rows = [
        ("date", date()),
        ("seed", seed.to_string()),
        ("minutes", format!("{:.1}", report.time.as_secs_f64() / 60.0)),
        ("episodes", report.episodes.sum().to_string()),
        ("containments", report.episodes.to_string()),
        ("hosts", format!("{}: {}", tally.hosts.sum(), tally.hosts)),
        ("by way of", tally.routes.to_string()),
        ("servers", tally.servers.to_string()),
        ("graces", tally.graces.to_string()),
        ("actions", format!("{}: {}", tally.actions.sum(), tally.actions)),
        ("faults", format!("{}: {}", tally.faults.sum(), tally.faults)),
        ("processes seen", tally.processes.to_string()),
        ("trees", format!("{}, {} of which lost leash and keeper to SIGKILL", tally.trees, tally.orphaned)),
        ("receipts", tally.receipts.to_string()),
        ("upstream sessions", upstream),
        ("bystanders", tally.bystanders.to_string()),
        ("not on this machine", join(&report.lacks)),
        ("not played", join(&report.unplayed)),
        ("failures", report.failures.len().to_string()),
    ];
    let rows: Vec<String> = rows.iter().map(|(name, value)| format!("| {name} | {value} |")).collect();
    format!("| chaos | |\n|---|---|\n{}", rows.join("\n"))
}

fn join(all: &[String]) -> String {
    let clean: Vec<String> = all.iter().map(|one| one.trim().replace('\n', " ").replace('|', "/")).collect();
    if clean.is_empty() { "none".to_owned() } else { clean.join("; ") }
}

/// The day, in UTC.
fn date() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let (year, month, day) = civil(since.as_secs() / 86_400);
    format!("{year}-{month:02}-{day:02}")
}

/// Days after 1970-01-01 as year, month and day. Uses whole cycles of 400 years, which begin in March so that the leap
/// day is last.
pub(crate) fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

fn as_json(seed: u64, report: &Report) -> Value {
    let failure = |failure: &Broken| {
        json!({
            "seed": failure.plan.seed,
            "episode": failure.plan.episode,
            "complaints": failure.complaints,
            "history": failure.history,
            "replay": failure.replay.to_string(),
        })
    };
    let tally = &report.tally;
    let sessions = &tally.sessions;
    json!({
        "date": date(),
        "seed": seed,
        "minutes": report.time.as_secs_f64() / 60.0,
        "episodes": report.episodes.0,
        "hosts": tally.hosts.0,
        "routes": tally.routes.0,
        "servers": tally.servers.0,
        "graces": tally.graces.0,
        "actions": tally.actions.0,
        "faults": tally.faults.0,
        "processes": tally.processes,
        "trees": tally.trees,
        "orphaned": tally.orphaned,
        "receipts": tally.receipts,
        "upstreamSessions": {
            "opened": sessions.opened,
            "deleted": sessions.deleted,
            "lost": sessions.lost,
            "left": sessions.left.0,
            "unknown": sessions.unknown,
        },
        "bystanders": tally.bystanders,
        "lacks": report.lacks,
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
    fn arguments_become_an_order() {
        let order = parse("--minutes 0.5 --seed 7 --episode 3 --json --tries 9 --patience 5").expect("a good order");
        let expected = Order {
            minutes: 0.5,
            seed: Some(7),
            episode: Some(3),
            tries: 9,
            patience: 5,
            replay: None,
            json: true,
            play: false,
        };
        assert_eq!(order, expected);
        assert_eq!(parse("--replay x").expect("a good order").replay.as_deref(), Some("x"));
    }

    #[test]
    fn days_become_calendar_dates() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (20_773, (2026, 11, 16)),
        ] {
            assert_eq!(civil(days), date, "{days}");
        }
    }

    #[test]
    fn a_table_has_no_broken_rows() {
        let mut report = Report { unplayed: vec!["a | b\nc".to_owned()], ..Report::default() };
        report.tally.faults.add("KILL leash");
        let text = as_text(7, &report);
        assert!(text.lines().all(|line| line.starts_with('|') && line.matches('|').count() == 3), "{text}");
        assert!(text.contains("| faults | 1: KILL leash 1 |") && text.contains("| seed | 7 |"), "{text}");
        assert_eq!(as_json(7, &report)["faults"]["KILL leash"], 1);
    }

    #[test]
    fn run_without_played_episodes_is_no_success() {
        let mut report = Report::default();
        let verdict = |report: &Report| verdict(report).map_err(|failure| failure.to_string());
        assert_eq!(verdict(&report), Err("no episode could be played".to_owned()));
        report.episodes.add("leaf as root");
        assert_eq!(verdict(&report), Ok(()));
        report.unplayed.push("episode 3: no disk".to_owned());
        assert_eq!(verdict(&report), Err("1 episodes could not be played".to_owned()));
    }

    #[test]
    fn unknown_arguments_are_refused() {
        for line in ["--minutes", "--minutes x", "--minutes -1", "--minutes NaN", "--seed -1", "dance"] {
            assert_eq!(parse(line), Err(USAGE.to_owned()), "{line}");
        }
    }
}
