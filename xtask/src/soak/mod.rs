//! `cargo xtask soak`: thousands of sessions that start, stay and end for a while. The resources of leash must not
//! grow.

mod crowd;
mod ending;
mod meter;
mod order;
mod plot;
mod report;
mod tally;
mod trend;
mod upstream;

use std::fs;
use std::time::Duration;

use serde_json::json;
use testkit::chaos::random::Random;
use testkit::gateway::Gateway;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::{self, Deadline, Stopwatch};

use crate::bench::proc::raise_descriptors;
use crate::step::{Failure, Outcome, PLAY, Step, Workspace, say};
use crowd::Crowd;
use ending::Ending;
use meter::{BRIEF, Page, Sample, look};
use order::{HTTP_EACH, Order, STDIO_EACH};
use report::Soaked;
use tally::Tally;
use upstream::Upstream;

/// The idle timeout of sessions of the server `brief`.
const IDLE: Duration = Duration::from_secs(10);
/// By then they must have expired, on a machine that is busy with ten thousand others.
const EXPIRED: Duration = Duration::from_secs(15);

/// The warm-up ends when this many sessions have ended for each one that was there. The memory in use does not grow
/// from the start, but a large buffer only has the pages that were ever written, and with 10,000 sessions it takes this
/// long until nearly all of them were.
const TURNS: u64 = 12;

/// The warm-up also ends only after the connections of idle clients are closed, which leash does after 120 s.
const UNUSED: Duration = Duration::from_secs(125);

/// The shortest interval between samples, so that a soak does not measure itself.
const PERIOD: f64 = 1.0;

/// The time for ending sessions to be gone: their linger and the grace of their trees are far below.
const SETTLE: Duration = Duration::from_secs(5);

/// The groups of clients.
struct World {
    http: Crowd,
    stdio: Crowd,
    brief: Crowd,
    /// The planted leak.
    leaking: Crowd,
}

impl World {
    fn new(serve: &Gateway) -> Self {
        let crowd = |name: &str, each, pace| {
            let url = serve.url(name);
            Crowd { url, each, pace, clients: Vec::new(), next: 0 }
        };
        Self {
            http: crowd("http", HTTP_EACH, 4),
            stdio: crowd("stdio", STDIO_EACH, 1),
            brief: crowd(BRIEF, HTTP_EACH, 1),
            leaking: crowd("http", HTTP_EACH, 0),
        }
    }

    fn gather(&mut self, scene: &Scene, order: &Order, tally: &mut Tally) -> Outcome {
        self.http.gather(scene, order.lasting(), tally)?;
        self.stdio.gather(scene, order.stdio, tally)?;
        self.brief.gather(scene, order.brief(), tally)
    }

    fn churn(&mut self, scene: &Scene, order: &Order, random: &mut Random, tally: &mut Tally) -> Outcome {
        let (http, stdio) = (self.http.invite(scene)?, self.stdio.invite(scene)?);
        self.http.churn(http, random, tally)?;
        self.stdio.churn(stdio, random, tally)?;
        self.brief.renew(scene, EXPIRED, tally)?;
        match order.leak {
            0 => Ok(()),
            sessions => self.leaking.leak(scene, sessions, tally),
        }
    }
}

pub(crate) fn run(workspace: &Workspace, words: &[String]) -> Outcome {
    let order = Order::parse(words)?;
    if order.play {
        return play(workspace, order);
    }
    // Ten thousand clients and their server use as much of the machine as leash, so they are built as leash is.
    let packages = ["mcp-leash", "testkit", "xtask"].map(|name| format!("--package={name}"));
    workspace.cargo(["build", "--release", "--bins"]).args(packages).run()?;
    Step::new(workspace.release("xtask")).args(["soak", PLAY]).args(words).envs(&workspace.programs()).run()
}

fn play(workspace: &Workspace, asked: Order) -> Outcome {
    // Child processes inherit our descriptor limit.
    let allowed = raise_descriptors(asked.descriptors());
    let too_few = || Failure::new(format!("{allowed} descriptors are too few for a soak: see `ulimit -n`"));
    let order = asked.clone().within(allowed).ok_or_else(too_few)?;
    if order.http < asked.http {
        say("Reduced", format!("to {} sessions over HTTP: {allowed} descriptors are allowed", order.http));
    }
    let scene = Scene::set(Who::me()).map_err(Failure::new)?;
    let upstream = Upstream::start()?;
    let serve = start(&scene, &upstream, &order)?;
    let before = look(&serve)?;
    say("Gathering", format!("{} HTTP and {} stdio sessions", order.http, order.stdio));
    let (mut world, mut tally, watch) = (World::new(&serve), Tally::default(), Stopwatch::start());
    world.gather(&scene, &order, &mut tally)?;
    let gathering = watch.time();
    say("Warming", format!("up; all came in {:.1} s", gathering.as_secs_f64()));
    let (warm, samples) = soak(&scene, &serve, &order, &mut world, &mut tally)?;
    say("Ending", "all clients crash");
    tally.crashed += tally.opened - tally.ended();
    drop(world);
    let ending: Ending = ending::end(&scene, serve, &upstream, before)?;
    let reduced = (order.http < asked.http).then_some(asked.http);
    report::tell(workspace, &Soaked { order, reduced, gathering, warm, samples, tally, ending })
}

/// Starts the gateway in front of two servers. The third is the first again, with sessions that expire without traffic.
fn start(scene: &Scene, upstream: &Upstream, order: &Order) -> Outcome<Gateway> {
    // A leader that exits when it should, and a process beside it in its own session.
    let words = scene.tree("setsid", ["--mcp"]);
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let idle = format!("{}s", IDLE.as_secs());
    let text = json!({
        "mcpServers": {
            "http": {"type": "http", "url": upstream.url()},
            "stdio": {"command": words[0], "args": words[1..]},
            BRIEF: {"type": "http", "url": upstream.url(), "leash": {"owner": "traffic", "idle": idle}},
        },
        "leash": {"linger": "100ms", "grace": "50ms", "maxSessions": 2 * (order.http + order.stdio) + 10_000},
    });
    let file = scene.dir().join("leash.json");
    fs::write(&file, text.to_string()).map_err(Failure::at(&file))?;
    let words = ["--config".into(), file.into_os_string()];
    Gateway::attempt(scene, "127.0.0.1:0", Vec::new(), words).map_err(Failure::new)
}

/// Waits until the ended sessions are gone: the number that is still ending depends on the load of the machine, which
/// is not what this measures. If it does not settle, it is measured as it is.
fn settle(serve: &Gateway, lasting: u64) -> Outcome {
    if !serve.is_alive() {
        return Err(Failure::new(format!("leash serve is gone: {}", serve.said())));
    }
    wait::every(SETTLE / 50, SETTLE, || (Page::of(serve).lasting() <= lasting as f64).then_some(()));
    Ok(())
}

/// Replaces clients, and takes a sample after each round: first for the warm-up, and then for the requested time.
fn soak(
    scene: &Scene,
    serve: &Gateway,
    order: &Order,
    world: &mut World,
    tally: &mut Tally,
) -> Outcome<(Duration, Vec<Sample>)> {
    let watch = Stopwatch::start();
    let mut warm: Option<(Duration, Deadline)> = None;
    let mut random = Random::of(order.seed, 0);
    let mut samples: Vec<Sample> = Vec::new();
    loop {
        match warm {
            Some((warm, deadline)) if deadline.is_over() => return Ok((warm, samples)),
            None if watch.time() >= UNUSED && tally.ended() >= TURNS * order.population() => {
                say("Soaking", format!("for {} minutes", order.minutes));
                let time = Duration::from_secs_f64(order.minutes * 60.0);
                warm = Some((watch.time(), Deadline::after(time)));
            }
            _ => {}
        }
        world.churn(scene, order, &mut random, tally)?;
        let since = watch.time().as_secs_f64();
        if samples.last().is_none_or(|last| since - last.time >= PERIOD) {
            settle(serve, tally.opened - tally.ended() - order.brief() as u64)?;
            let values = look(serve)?;
            samples.push(Sample { time: watch.time().as_secs_f64(), ended: tally.ended(), values });
        }
    }
}
