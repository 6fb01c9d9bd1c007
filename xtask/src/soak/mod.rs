//! `cargo xtask soak`: thousands of sessions that come, stay and go for a while. What leash takes must not grow.

mod crowd;
mod plot;
mod trend;

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::Pid;
use serde_json::{Value, json};
use testkit::chaos::random::Random;
use testkit::fixture::Fixture;
use testkit::gateway::{self, Gateway};
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::{self, Deadline, Stopwatch};

use crate::bench::proc::{descendants, raise_descriptors};
use crate::step::{Failure, Outcome, Step, Workspace, say};
use crowd::{Client, Leave};
use plot::Curve;
use trend::Trend;

/// Says to this program, given the programs to try, that it shall play.
const PLAY: &str = "--play";

const USAGE: &str = "soak has --minutes N, --http N, --stdio N (sessions), --seed N and --json";

/// Sessions of one client: half a hundred clients crash in the time of a soak, and not ten thousand.
const HTTP_EACH: usize = 100;
const STDIO_EACH: usize = 5;

/// As many clients begin at the same time.
const AT_ONCE: usize = 8;

/// Of the clients, as many never leave.
const IDLE: usize = 3;

/// What is not yet steady: everybody came once, and a third of the time has passed.
const WARM: f64 = 1.0 / 3.0;

/// What the command line asked for.
#[derive(Debug, PartialEq)]
struct Order {
    minutes: f64,
    http: usize,
    stdio: usize,
    seed: u64,
    json: bool,
    play: bool,
}

impl Order {
    fn parse(words: &[String]) -> Outcome<Self> {
        let mut order = Self { minutes: 10.0, http: 10_000, stdio: 200, seed: 1, json: false, play: false };
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            match word {
                "--json" => order.json = true,
                PLAY => order.play = true,
                "--minutes" => order.minutes = value(words.next())?,
                "--http" => order.http = value(words.next())?,
                "--stdio" => order.stdio = value(words.next())?,
                "--seed" => order.seed = value(words.next())?,
                _ => return Err(Failure::new(USAGE)),
            }
        }
        let is_good =
            order.minutes.is_finite() && order.minutes > 0.0 && order.http >= HTTP_EACH && order.stdio >= STDIO_EACH;
        if is_good { Ok(order) } else { Err(Failure::new(USAGE)) }
    }
}

fn value<T: std::str::FromStr>(word: Option<&str>) -> Outcome<T> {
    word.and_then(|word| word.parse().ok()).ok_or_else(|| Failure::new(USAGE))
}

/// What was seen at one moment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    time: f64,
    values: [f64; METERS.len()],
}

/// What is looked at, all of it of `leash serve`; processes are those below it.
const METERS: [&str; 5] = ["private memory, KiB", "descriptors", "threads", "processes", "sessions"];

/// A group of clients of one server.
struct Crowd {
    url: String,
    each: usize,
    clients: Vec<Client>,
    next: usize,
}

impl Crowd {
    fn gather(scene: &Scene, url: String, each: usize, sessions: usize) -> Outcome<Self> {
        let mut crowd = Self { url, each, clients: Vec::new(), next: 0 };
        let mut missing = sessions / each;
        while missing > 0 {
            let coming = missing.min(AT_ONCE);
            let mut batch = (0..coming).map(|_| Client::start(scene, &crowd.url, each)).collect::<Outcome<Vec<_>>>()?;
            batch.iter_mut().try_for_each(Client::wait)?;
            crowd.clients.append(&mut batch);
            missing -= coming;
        }
        Ok(crowd)
    }

    /// The next client that is not among the idle ones leaves, and another one comes and makes its calls.
    fn churn(&mut self, scene: &Scene, random: &mut Random) -> Outcome {
        let movable = self.clients.len().saturating_sub(IDLE).max(1);
        let at = self.next % movable;
        self.next += 1;
        let mut client = Client::start(scene, &self.url, self.each)?;
        client.wait()?;
        client.call()?;
        let old = std::mem::replace(&mut self.clients[at], client);
        old.leave(Leave::draw(random), self.each)
    }
}

pub(crate) fn run(workspace: &Workspace, words: &[String]) -> Outcome {
    let order = Order::parse(words)?;
    if order.play {
        return play(workspace, &order);
    }
    workspace.cargo(["build", "--release", "--package", "mcp-leash", "--package", "testkit", "--bins"]).run()?;
    workspace.fixture().run()?;
    let this = std::env::current_exe().map_err(Failure::at(Path::new("xtask")))?;
    Step::new(this).args(["soak", PLAY]).args(words).envs(&workspace.programs()).run()
}

fn play(workspace: &Workspace, order: &Order) -> Outcome {
    // A connection of each client on both sides of leash, and room.
    raise_descriptors(2 * order.http as u64 + 4_000);
    let scene = Scene::set(Who::me()).map_err(Failure::new)?;
    let fixture = Fixture::http(&[]);
    let serve = start(&scene, &fixture, order)?;
    say("Gathering", format!("{} HTTP and {} stdio sessions", order.http, order.stdio));
    let mut crowds = [
        Crowd::gather(&scene, serve.url("http"), HTTP_EACH, order.http)?,
        Crowd::gather(&scene, serve.url("stdio"), STDIO_EACH, order.stdio)?,
    ];
    let samples = soak(&scene, &serve, &mut crowds, order)?;
    say("Ending", "all clients crash");
    drop(crowds);
    let left = end(&scene, serve, &fixture);
    report(workspace, order, &samples, left)
}

fn start(scene: &Scene, fixture: &Fixture, order: &Order) -> Outcome<Gateway> {
    let words = scene.tree("polite", ["--mcp"]);
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let most = order.http + order.stdio + 2 * (HTTP_EACH + STDIO_EACH) + 1_000;
    let text = json!({
        "mcpServers": {
            "http": {"type": "http", "url": fixture.url()},
            "stdio": {"command": words[0], "args": words[1..]},
        },
        "leash": {"linger": "100ms", "grace": "500ms", "maxSessions": most},
    });
    let file = scene.dir().join("leash.json");
    fs::write(&file, text.to_string()).map_err(Failure::at(&file))?;
    let words = ["--config".into(), file.into_os_string()];
    Gateway::attempt(scene, "127.0.0.1:0", Vec::new(), words).map_err(Failure::new)
}

/// Churn, and a look after each round.
fn soak(scene: &Scene, serve: &Gateway, crowds: &mut [Crowd], order: &Order) -> Outcome<Vec<Sample>> {
    let time = Duration::from_secs_f64(order.minutes * 60.0);
    let (watch, deadline) = (Stopwatch::start(), Deadline::after(time));
    let mut random = Random::of(order.seed, 0);
    let mut samples: Vec<Sample> = Vec::new();
    let mut rounds = 0;
    while !deadline.is_over() {
        for crowd in &mut *crowds {
            crowd.churn(scene, &mut random)?;
        }
        rounds += 1;
        // As often as a second, so that a long soak does not measure itself.
        if samples.last().is_none_or(|last| watch.time().as_secs_f64() - last.time >= 1.0) {
            samples.push(Sample { time: watch.time().as_secs_f64(), values: look(serve)? });
        }
    }
    say("Soaked", format!("{rounds} rounds, {} samples", samples.len()));
    Ok(samples)
}

fn look(serve: &Gateway) -> Outcome<[f64; METERS.len()]> {
    let pid: Pid = serve.pid();
    if !serve.is_alive() {
        return Err(Failure::new(format!("leash serve is gone: {}", serve.said())));
    }
    let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).map_or(0, Iterator::count);
    Ok([
        gateway::memory(pid) as f64 / 1024.0,
        serve.descriptors() as f64,
        threads as f64,
        descendants(pid).len() as f64,
        serve.sessions("http") + serve.sessions("stdio"),
    ])
}

/// What is left when all clients are gone, in words.
fn end(scene: &Scene, serve: Gateway, fixture: &Fixture) -> Vec<String> {
    let mut left = Vec::new();
    let patience = Duration::from_secs(120);
    let open = || serve.sessions("http") + serve.sessions("stdio");
    if wait::every(Duration::from_millis(200), patience, || (open() == 0.0).then_some(())).is_none() {
        left.push(format!("{} sessions at leash", open()));
    }
    if let Err(survivors) = scene.wait_gone(&[serve.pid()]) {
        left.push(survivors.to_string());
    }
    let upstream = fixture.report().open().len();
    if upstream > 0 {
        left.push(format!("{upstream} sessions at the upstream server"));
    }
    serve.stop();
    if !scene.ledger().is_empty() {
        left.push(format!("{} records in the ledger", scene.ledger().len()));
    }
    left
}

fn report(workspace: &Workspace, order: &Order, samples: &[Sample], left: Vec<String>) -> Outcome {
    let warm = samples.last().map_or(0.0, |last| last.time * WARM);
    let curve = |at: usize| Curve {
        name: METERS[at],
        points: samples.iter().map(|sample| (sample.time, sample.values[at])).collect(),
    };
    let curves: Vec<Curve<'_>> = (0..METERS.len()).map(curve).collect();
    let steady = |points: &[(f64, f64)]| points.iter().copied().filter(|(time, _)| *time >= warm).collect::<Vec<_>>();
    let trends: Vec<Option<Trend>> = curves.iter().map(|curve| Trend::of(&steady(&curve.points))).collect();
    let whole = as_json(order, &curves, &trends, &left);
    let dir = workspace.target.join("soak");
    fs::create_dir_all(&dir).map_err(Failure::at(&dir))?;
    let title = format!("leash serve with {} HTTP and {} stdio sessions that come and go", order.http, order.stdio);
    for (name, text) in [("soak.svg", plot::svg(&title, &curves, warm)), ("soak.json", format!("{whole:#}\n"))] {
        let file = dir.join(name);
        fs::write(&file, text).map_err(Failure::at(&file))?;
        say("Wrote", file.display());
    }
    match order.json {
        true => println!("{whole:#}"),
        false => println!("{}", as_text(&trends)),
    }
    let growing: Vec<&str> = METERS
        .iter()
        .zip(&trends)
        .filter(|(_, trend)| trend.is_none_or(|trend| trend.grows()))
        .map(|(name, _)| *name)
        .collect();
    match (growing.is_empty(), left.is_empty()) {
        (true, true) => Ok(()),
        (false, _) => Err(Failure::new(format!("not shown to be flat: {}", growing.join(", ")))),
        (true, false) => Err(Failure::new(format!("left behind: {}", left.join("; ")))),
    }
}

fn as_text(trends: &[Option<Trend>]) -> String {
    let row = |(name, trend): (&&str, &Option<Trend>)| match trend {
        Some(trend) => format!(
            "| {name} | {:.0} | {:+.4} | {:+.4} | {:.3} | {} |\n",
            trend.level,
            trend.slope,
            trend.least,
            trend.chance,
            if trend.grows() { "grows" } else { "flat" }
        ),
        None => format!("| {name} | | | | | too few samples |\n"),
    };
    let rows: String = METERS.iter().zip(trends).map(row).collect();
    format!(
        "| of leash serve | median | growth a second | at least | chance if flat | verdict |\n|---|---|---|---|---|---|\n{rows}"
    )
}

fn as_json(order: &Order, curves: &[Curve<'_>], trends: &[Option<Trend>], left: &[String]) -> Value {
    let meter = |(curve, trend): (&Curve<'_>, &Option<Trend>)| {
        let trend = trend.map(|trend| {
            json!({"median": trend.level, "slope": trend.slope, "least": trend.least, "chance": trend.chance, "grows": trend.grows()})
        });
        json!({"name": curve.name, "samples": curve.points, "trend": trend})
    };
    json!({
        "minutes": order.minutes,
        "http": order.http,
        "stdio": order.stdio,
        "seed": order.seed,
        "left": left,
        "meters": curves.iter().zip(trends).map(meter).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Outcome<Order> {
        Order::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn an_order_is_what_was_said() {
        let order = parse("--minutes 2 --http 500 --stdio 10 --seed 4 --json").expect("a good order");
        assert_eq!(order, Order { minutes: 2.0, http: 500, stdio: 10, seed: 4, json: true, play: false });
        assert_eq!(parse("").map(|order| (order.http, order.stdio)).ok(), Some((10_000, 200)));
    }

    #[test]
    fn what_is_no_order_is_refused() {
        for line in ["--minutes 0", "--minutes x", "--http 5", "--stdio 0", "--http", "dance"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
