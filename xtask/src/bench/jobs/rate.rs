//! Sessions created and ended per second, one after another and many at once.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::control::Control;

use super::super::plot::{Panel, Tone};
use super::super::report::Report;
use super::super::stats::Rounds;
use super::super::{Effort, now};
use super::{Stage, all_gone};
use crate::step::{Failure, Outcome};

/// The numbers of concurrent callers.
const AT_ONCE: [usize; 2] = [1, 8];

/// The program that runs the servers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Only starts them, closes their stdin and waits for their exit.
    Bare,
    Leash,
}

/// The servers of a session, the number of callers, and the program that runs the servers.
struct Arm<'a> {
    servers: &'a [Value],
    at_once: usize,
    way: Way,
}

const ABOUT: &str = "`POST /v1/sessions` (its servers run) and `DELETE` (they are proved to be gone). The floor starts \
the same servers, closes their stdin and waits for them, without a daemon in between.";

pub(super) fn measure(effort: Effort) -> Outcome<Report> {
    let stage = Stage::set()?;
    let servers = vec![stage.tree("polite", 1, "2s"); 2];
    let time = effort.pick(Duration::from_millis(400), Duration::from_secs(1));
    let mut arms = Vec::new();
    for count in 1..=servers.len() {
        for at_once in AT_ONCE {
            arms.extend([Way::Bare, Way::Leash].map(|way| Arm { servers: &servers[..count], at_once, way }));
        }
    }
    let rounds = Rounds::take(effort.pick(3, 10), arms.len(), |arm| {
        let Arm { servers, at_once, way } = arms[arm];
        match way {
            Way::Bare => rate(at_once, time, || bare(servers)),
            Way::Leash => rate(at_once, time, || session(&stage.control, servers)),
        }
    })?;
    let mut report = Report::new(
        "Sessions of the control API, created and ended",
        ABOUT,
        ["session", "at once", "sessions/s [95 %]", "to the floor [95 %]", "median ms for both"],
    );
    let mut panel = Panel::ratios("sessions per second, as a multiple of the floor's");
    for (index, arm) in arms.iter().enumerate() {
        let name = arm.name();
        let (rate, ratio) = (rounds.median(index), rounds.ratio(index, index - index % 2));
        let each = arm.at_once as f64 * 1e3 / rate.value;
        report.row([
            name.clone(),
            arm.at_once.to_string(),
            format!("{rate:.0}"),
            format!("{ratio:.2}"),
            format!("{each:.1}"),
        ]);
        report.keep(&format!("{name} / {}", arm.at_once), "sessions/s", &rounds, index);
        let tone = if arm.way == Way::Bare { Tone::Floor } else { Tone::Leash };
        panel.bar(format!("{name}, {} at once", arm.at_once), tone, ratio);
    }
    report.panel(panel);
    stage.gateway.stop();
    Ok(report)
}

impl Arm<'_> {
    fn name(&self) -> String {
        let servers = if self.servers.len() == 1 { "one stdio server" } else { "two stdio servers" };
        match self.way {
            Way::Bare => format!("floor, {servers}"),
            Way::Leash => format!("leash, {servers}"),
        }
    }
}

/// Creates and ends one session of leash.
fn session(control: &Control, servers: &[Value]) -> Outcome {
    let names = ["a", "b"].map(str::to_owned);
    let servers: serde_json::Map<String, Value> = names.into_iter().zip(servers.iter().cloned()).collect();
    let session = control.create(&json!({"mcpServers": servers}));
    all_gone(&control.end(&session))
}

/// The same without leash.
fn bare(servers: &[Value]) -> Outcome {
    let running = servers.iter().map(start).collect::<Outcome<Vec<Child>>>()?;
    running.into_iter().try_for_each(|mut server| {
        drop(server.stdin.take());
        let status = server.wait().map_err(|error| Failure::new(format!("a server is lost: {error}")))?;
        if status.success() { Ok(()) } else { Err(Failure::new(format!("a server ended with {status}"))) }
    })
}

/// Starts a server from an entry of `mcpServers`.
fn start(server: &Value) -> Outcome<Child> {
    let words = server["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut command = Command::new(server["command"].as_str().unwrap_or_default());
    let spawned = command.args(words).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
    spawned.map_err(|error| Failure::new(format!("a server does not start: {error}")))
}

/// Sessions per second with this many callers.
fn rate(at_once: usize, time: Duration, session: impl Fn() -> Outcome + Sync) -> Outcome<f64> {
    let start = now();
    let work = || {
        let mut sessions = 0;
        while now() - start < time {
            session()?;
            sessions += 1;
        }
        Ok::<u32, Failure>(sessions)
    };
    let counted: Outcome<Vec<u32>> = thread::scope(|scope| {
        let callers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        let joined = |caller: thread::ScopedJoinHandle<'_, Outcome<u32>>| {
            caller.join().unwrap_or_else(|_| Err(Failure::new("a caller panicked")))
        };
        callers.into_iter().map(joined).collect()
    });
    let sessions: u32 = counted?.into_iter().sum();
    Ok(f64::from(sessions) / (now() - start).as_secs_f64())
}
