//! The result of a soak: tables for people, all data for programs, and a picture.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::ending::Ending;
use super::meter::{METERS, Sample};
use super::order::Order;
use super::plot::{self, Curve};
use super::tally::Tally;
use super::trend::Trend;
use crate::step::{Failure, Outcome, Step, Workspace, say};
use crate::svg::short;

/// All results.
pub(crate) struct Soaked {
    pub(crate) order: Order,
    /// The requested number of HTTP sessions, if there were fewer.
    pub(crate) reduced: Option<usize>,
    /// The time until the first clients were all there.
    pub(crate) gathering: Duration,
    /// The warm-up time, which is no part of the verdict. It is decided before the evaluation, so the measurements
    /// cannot influence it.
    pub(crate) warm: Duration,
    pub(crate) samples: Vec<Sample>,
    pub(crate) tally: Tally,
    pub(crate) ending: Ending,
}

impl Soaked {
    /// The number of sessions that ended per second after the warm-up.
    fn rate(&self, warm: f64) -> f64 {
        let first = self.samples.iter().find(|sample| sample.time >= warm);
        let (Some(first), Some(last)) = (first, self.samples.last()) else { return 0.0 };
        (last.ended - first.ended) as f64 / (last.time - first.time).max(f64::MIN_POSITIVE)
    }

    fn curve(&self, at: usize) -> Curve<'static> {
        let points = self.samples.iter().map(|sample| (sample.time, sample.values[at])).collect();
        Curve { name: METERS[at].name, points }
    }

    /// The trend of each meter after the warm-up.
    fn trends(&self, warm: f64, rate: f64) -> Vec<Option<Trend>> {
        let trend = |at: usize| {
            let steady: Vec<_> = self.curve(at).points.into_iter().filter(|(time, _)| *time >= warm).collect();
            Trend::of(&steady, METERS[at].tolerated * rate)
        };
        (0..METERS.len()).map(trend).collect()
    }
}

/// Prints and writes the results. Growth, or something left, is a failure.
pub(crate) fn tell(workspace: &Workspace, soaked: &Soaked) -> Outcome {
    let warm = soaked.warm.as_secs_f64();
    let rate = soaked.rate(warm);
    let trends = soaked.trends(warm, rate);
    let date = Step::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]).answer().unwrap_or_default();
    let whole = as_json(soaked, &date, warm, &trends);
    let order = &soaked.order;
    let title = format!(
        "leash serve with {} HTTP and {} stdio sessions that come and go, {:.0} a second",
        short(order.http as f64),
        order.stdio,
        rate
    );
    let curves: Vec<Curve<'_>> = (0..METERS.len()).map(|at| soaked.curve(at)).collect();
    let picture = plot::svg(&title, &curves, warm);
    let dir = workspace.target.join("soak");
    let mut files = vec![(dir.join("soak.json"), format!("{whole:#}\n")), (dir.join("soak.svg"), picture.clone())];
    files.extend(picture_besides(workspace, order).map(|file| (file, picture)));
    for (file, text) in files {
        let dir = file.parent().unwrap_or(&file);
        fs::create_dir_all(dir).map_err(Failure::at(dir))?;
        fs::write(&file, text).map_err(Failure::at(&file))?;
        say("Wrote", file.display());
    }
    match order.json {
        true => println!("{whole:#}"),
        false => println!("{}", as_text(soaked, &date, warm, &trends)),
    }
    verdict(&trends, &soaked.ending.left)
}

/// The picture of a soak with default options goes into the documents; for others, `--plot` names the file.
fn picture_besides(workspace: &Workspace, order: &Order) -> Option<PathBuf> {
    let usual = Order::parse(&[]).ok()?;
    let as_meant = order.http >= usual.http && order.stdio >= usual.stdio && order.minutes >= usual.minutes;
    match &order.plot {
        Some(file) => Some(workspace.root.join(file)),
        None => (as_meant && order.leak == 0).then(|| workspace.root.join("docs/bench/soak.svg")),
    }
}

fn verdict(trends: &[Option<Trend>], left: &[String]) -> Outcome {
    let judged = || METERS.iter().zip(trends);
    let names = |is: fn(&Option<Trend>) -> bool| {
        judged().filter(|(_, trend)| is(trend)).map(|(meter, _)| meter.name).collect::<Vec<_>>().join(", ")
    };
    let (growing, unknown) = (names(|trend| trend.is_some_and(|trend| trend.grows())), names(Option::is_none));
    let mut complaints = Vec::new();
    if !growing.is_empty() {
        complaints.push(format!("not flat: {growing}"));
    }
    if !unknown.is_empty() {
        complaints.push(format!("too short to say anything of {unknown}"));
    }
    if !left.is_empty() {
        complaints.push(format!("left behind: {}", left.join("; ")));
    }
    if complaints.is_empty() { Ok(()) } else { Err(Failure::new(complaints.join("; "))) }
}

fn as_text(soaked: &Soaked, date: &str, warm: f64, trends: &[Option<Trend>]) -> String {
    format!("{}\n{}", story(soaked, date), judgement(soaked, warm, trends))
}

/// The description of the run.
fn story(soaked: &Soaked, date: &str) -> String {
    let Soaked { order, tally, ending, gathering, .. } = soaked;
    let count = |count: u64| short(count as f64);
    let at_once = match soaked.reduced {
        Some(asked) => format!("{} over HTTP ({asked} were asked for) and {} stdio", order.http, order.stdio),
        None => format!("{} over HTTP and {} stdio", order.http, order.stdio),
    };
    let reasons: Vec<String> = ending.reasons.iter().map(|(reason, times)| format!("{reason} {times}")).collect();
    let witness = &ending.witness;
    let upstream = format!("{} opened, {} deleted, {} deleted twice", witness.opened, witness.deleted, witness.astray);
    let took = ending.took.as_secs_f64();
    let end = match ending.left.is_empty() {
        true => format!("nothing, {took:.1} s after all clients were killed"),
        false => ending.left.join("; ").replace(['\n', '|'], " "),
    };
    let mut rows = vec![
        ("sessions at a time", at_once),
        ("all of them came within", format!("{:.1} s", gathering.as_secs_f64())),
        ("sessions opened", count(tally.opened)),
        ("client killed by SIGKILL", count(tally.crashed)),
        ("client exited without a word", count(tally.exited)),
        ("client sent DELETE", count(tally.deleted)),
        ("client lived on, session expired", count(tally.expired)),
        ("event streams", format!("{}, {} of them cut by the client", count(tally.streams), count(tally.cut))),
        ("ended, as leash counted", reasons.join(", ")),
        ("the upstream server saw", upstream),
        ("left at the end", end),
    ];
    if order.leak > 0 {
        rows.push(("planted leak", format!("{} sessions a round that never end", order.leak)));
    }
    let rows: String = rows.iter().map(|(name, value)| format!("| {name} | {value} |\n")).collect();
    format!("| soak, {date} | {} minutes, seed {} |\n|---|---|\n{rows}", order.minutes, order.seed)
}

/// The verdict.
fn judgement(soaked: &Soaked, warm: f64, trends: &[Option<Trend>]) -> String {
    let rate = soaked.rate(warm);
    let (before, after) = (&soaked.ending.before, &soaked.ending.after);
    let row = |(at, trend): (usize, &Option<Trend>)| {
        let (name, before, after) = (METERS[at].name, before[at], after[at]);
        match trend {
            Some(trend) => format!(
                "| {name} | {before:.0} | {:.0} | {:+.3} [{:+.3}, {:+.3}] | {:.3} | {:.3} | {} | {after:.0} |\n",
                trend.level,
                trend.slope,
                trend.least,
                trend.most,
                trend.tolerated,
                trend.chance,
                if trend.grows() { "grows" } else { "flat" }
            ),
            None => format!("| {name} | {before:.0} | | | | | too short | {after:.0} |\n"),
        }
    };
    let rows: String = trends.iter().enumerate().map(row).collect();
    format!(
        "After {warm:.0} s of warm-up, with {rate:.0} sessions a second that ended and as many that began:\n\n\
         | of `leash serve` | before | median | growth a second, 95 % interval | tolerated | p, if flat | verdict | at the end |\n\
         |---|---|---|---|---|---|---|---|\n{rows}"
    )
}

fn as_json(soaked: &Soaked, date: &str, warm: f64, trends: &[Option<Trend>]) -> Value {
    let Soaked { order, ending, .. } = soaked;
    let meter = |(at, trend): (usize, &Option<Trend>)| {
        let trend = trend.map(|trend| {
            json!({
                "median": trend.level,
                "slope": trend.slope,
                "interval95": [trend.least, trend.most],
                "tolerated": trend.tolerated,
                "p": trend.chance,
                "grows": trend.grows(),
            })
        });
        json!({
            "name": METERS[at].name,
            "before": ending.before[at],
            "after": ending.after[at],
            "trend": trend,
            "samples": soaked.curve(at).points,
        })
    };
    let witness = &ending.witness;
    json!({
        "format": 1,
        "date": date,
        "minutes": order.minutes,
        "warmUpTurns": super::TURNS,
        "http": order.http,
        "httpAsked": soaked.reduced.unwrap_or(order.http),
        "stdio": order.stdio,
        "seed": order.seed,
        "leak": order.leak,
        "gatheringSeconds": soaked.gathering.as_secs_f64(),
        "warmSeconds": warm,
        "sessions": soaked.tally.json(),
        "reasons": ending.reasons,
        "upstream": {"opened": witness.opened, "deleted": witness.deleted, "astray": witness.astray, "open": witness.open()},
        "endSeconds": ending.took.as_secs_f64(),
        "left": ending.left,
        "meters": trends.iter().enumerate().map(meter).collect::<Vec<_>>(),
    })
}
