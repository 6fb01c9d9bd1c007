//! The cost of an open `leash top`, of `leash ps --json --watch` and of the page of `leash serve`, beside many trees that
//! do nothing.

use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use testkit::gateway::Gateway;
use testkit::process::Handle;
use testkit::pty::Pty;
use testkit::scene::Scene;
use testkit::wait::{self, LIMIT};

use super::super::plot::{Goal, Panel, Tone};
use super::super::proc::{kilobytes, processor_time};
use super::super::report::{Claim, Report};
use super::super::stats::Estimate;
use super::super::{Effort, now};
use crate::step::{Failure, Outcome};

/// The numbers of trees.
const CROWDS: [usize; 2] = [100, 1_000];

/// The warm-up: the first looks read everything, and a young process is read in every scan.
const WARM_UP: Duration = Duration::from_secs(13);

/// The longest measured time. The screen is read for as long as [`LIMIT`], which is longer than both together.
const MEASURED: Duration = Duration::from_secs(20);

/// Per cent of one processor, with 100 trees.
const IDLE: Goal = Goal::AtMost(1.0);

const ABOUT: &str = "processor time and memory of an open view, while every tree (supervisor, keeper and one server) does \
nothing. `top` is `leash top` in a terminal of 160 columns, `feed` is `leash ps --json --watch`. Both look every second. `page` is a `leash serve` with one open tab, without the browser itself, \
and `page, closed` the same gateway without a tab.";

/// The end of the alternate screen: `leash top` has left it.
const LEFT: &str = "\u{1b}[?1049l";

pub(super) fn measure(effort: Effort) -> Outcome<Report> {
    let columns = ["trees", "view", "% of a processor", "PSS kB", "private dirty kB"];
    let mut report = Report::new("An open `leash top`", ABOUT, columns);
    let mut panel = Panel::new("% of a processor, with a target for 100 trees").goal(IDLE);
    for crowd in CROWDS.into_iter().take(effort.pick(1, CROWDS.len())) {
        let mut scene = super::scene()?;
        let mut trees = Trees::start(&mut scene, crowd)?;
        let [closed, page] = page(&scene, effort)?;
        let costs =
            [("top", top(&scene, effort)?), ("feed", feed(&scene, effort)?), ("page", page), ("page, closed", closed)];
        for (view, cost) in costs {
            report.row([
                crowd.to_string(),
                view.to_owned(),
                format!("{:.2}", cost.per_cent),
                format!("{:.0}", cost.pss),
                format!("{:.0}", cost.private),
            ]);
            let found = Estimate::single(cost.per_cent);
            panel.bar(format!("{crowd} trees, {view}"), Tone::Leash, found);
            if crowd == CROWDS[0] {
                let what = format!("processor time of an idle `{view}` with {crowd} trees");
                report.claim(Claim { what, unit: "%", found, goal: IDLE });
            }
        }
        trees.end();
    }
    report.panel(panel);
    Ok(report)
}

/// Many `leash run`, each held by its stdin.
struct Trees(Vec<Child>);

impl Trees {
    fn start(scene: &mut Scene, count: usize) -> Outcome<Trees> {
        let words = scene.run_words(["--name", "idle"], &scene.tree("polite", [""; 0]));
        let mut trees = Trees(Vec::new());
        for _ in 0..count {
            let mut command = scene.command(&words[0]);
            command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            trees.0.push(start_of(command.spawn())?);
        }
        let ready = scene.census().wait_all_ready(count, LIMIT * 5);
        ready.map_err(|_| Failure::new(format!("not all of {count} trees came up")))?;
        Ok(trees)
    }

    fn end(&mut self) {
        self.0.iter_mut().for_each(|child| drop(child.stdin.take()));
        self.0.iter_mut().for_each(|child| drop(child.wait()));
    }
}

impl Drop for Trees {
    fn drop(&mut self) {
        self.end();
    }
}

/// The cost of a view.
struct Cost {
    per_cent: f64,
    pss: f64,
    private: f64,
}

fn top(scene: &Scene, effort: Effort) -> Outcome<Cost> {
    let pty = Pty::open().map_err(|error| Failure::new(format!("no terminal: {error}")))?;
    let side = || pty.terminal().map_err(|error| Failure::new(format!("no terminal: {error}")));
    pty.resize(160).map_err(|error| Failure::new(format!("no terminal: {error}")))?;
    let mut command = scene.leash(["top"]);
    command.env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8").stdin(side()?).stdout(side()?).stderr(Stdio::null());
    let mut child = start_of(command.spawn())?;
    std::thread::scope(|scope| {
        // A terminal that is not read would block it.
        scope.spawn(|| pty.read_until(LEFT, 1));
        let cost = rest(Pid::from_child(&child), effort);
        end(&mut child);
        cost
    })
}

fn feed(scene: &Scene, effort: Effort) -> Outcome<Cost> {
    let mut command = scene.leash(["ps", "--json", "--watch"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = start_of(command.spawn())?;
    let cost = rest(Pid::from_child(&child), effort);
    end(&mut child);
    cost
}

/// A gateway without a tab, and then with one.
fn page(scene: &Scene, effort: Effort) -> Outcome<[Cost; 2]> {
    let gateway = Gateway::single(scene, &[], &["cat".into()]);
    let closed = rest(gateway.pid(), effort)?;
    let link = scene.answer(["status", "--open"]).stdout;
    let path = link.trim_end().strip_prefix(&format!("http://{}", gateway.address())).unwrap_or_default();
    let opened = gateway.ask("GET", path, &[], b"");
    let cookie = opened.header("set-cookie").and_then(|cookie| cookie.split(';').next());
    let cookie = cookie.ok_or_else(|| Failure::new("the link gives no cookie"))?;
    let mut stream = gateway.connect();
    let sent = stream.send("GET", "/-/events", &[("cookie", cookie)], b"");
    sent.and_then(|()| stream.head()).map_err(|error| Failure::new(format!("no event stream: {error}")))?;
    let open = std::thread::scope(|scope| {
        // The stream ends with the gateway.
        scope.spawn(move || while let Ok(Some(_)) = stream.chunk() {});
        let cost = rest(gateway.pid(), effort);
        gateway.stop();
        cost
    })?;
    Ok([closed, open])
}

fn end(child: &mut Child) {
    let handle = Handle::open(Pid::from_child(child), |_| true);
    if let Some(handle) = handle {
        let _ = handle.signal(Signal::TERM);
    }
    let _ = child.wait();
}

fn rest(pid: Pid, effort: Effort) -> Outcome<Cost> {
    pass(WARM_UP);
    let (spent, start) = (processor_time(pid)?, now());
    pass(effort.pick(MEASURED / 2, MEASURED));
    let share = (processor_time(pid)? - spent).as_secs_f64() / (now() - start).as_secs_f64();
    Ok(Cost { per_cent: share * 100.0, pss: kilobytes(pid, "Pss:")?, private: kilobytes(pid, "Private_Dirty:")? })
}

fn start_of(child: std::io::Result<Child>) -> Outcome<Child> {
    child.map_err(|error| Failure::new(format!("leash does not start: {error}")))
}

/// Waits: the measurement needs this time to pass.
fn pass(time: Duration) {
    let _ = wait::within(time, || None::<()>);
}
