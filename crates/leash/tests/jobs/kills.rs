//! The worker is killed at a random moment: none of its sessions remains.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use testkit::census::Census;
use testkit::process::Handle;
use testkit::{note, or_skip, wait};

use super::stage::{Stage, Worker, size};

/// The number of concurrent workers, each with two lanes.
const WORKERS: usize = 2;

/// In this time a worker starts, finds the daemon, creates its sessions, uses them and ends some of them.
const SPAN: Duration = Duration::from_millis(3_000);

#[test]
fn a_worker_killed_at_any_moment_leaves_nothing() {
    let stage = or_skip!(Stage::set());
    let starter = rustix::process::getpid().as_raw_nonzero().to_string();
    let mut daemon = stage.scene.leash(["serve", "--on-demand", "--starter", &starter]);
    let mut daemon = daemon.stdout(Stdio::null()).stderr(stage.stderr()).spawn().expect("cannot start leash");
    let pid = Pid::from_child(&daemon);
    let process = Handle::open(pid, |_| true).expect("it is our child");
    let socket = stage.scene.runtime_dir().join("control.sock");
    wait::until("the daemon", || socket.exists().then_some(()));

    let lanes: Vec<Census> =
        (0..2).map(|lane| Census::create(stage.scene.dir().join(format!("lane-{lane}")))).collect();
    let rounds = size("LEASH_JOB_KILLS", 10).div_ceil(WORKERS);
    let mut done = 0;
    for round in 0..rounds {
        let mut workers: Vec<Worker> =
            (0..WORKERS).map(|_| Worker::load(&stage, &lanes, usize::MAX >> 12, false)).collect();
        for worker in &mut workers {
            let delay = SPAN.mul_f64(testkit::random() as f64 / u64::MAX as f64 / WORKERS as f64);
            wait::step(delay);
            worker.kill();
        }
        stage.scene.outer().map_or(Ok(()), |outer| outer.wait_only(&[pid], wait::LIMIT)).unwrap_or_else(|survivors| {
            panic!("round {round}: {survivors}\n{}", stage.scene.stderr());
        });
        assert!(lanes.iter().all(|lane| lane.wait_gone(wait::LIMIT).is_ok()), "round {round}");
        done = stage.fixture.wait_deleted();
    }
    assert!(done > 0, "no worker came far enough to be worth killing");
    note(&format!("{} kills, {done} upstream sessions", rounds * WORKERS));

    process.signal(Signal::TERM).expect("cannot signal the daemon");
    assert!(process.wait_gone(wait::LIMIT), "the daemon does not end");
    daemon.wait().expect("it is our child");
    stage.check_end();
}

/// No other process needs the daemon that the worker had started, so it ends by itself.
#[test]
fn the_daemon_of_a_killed_worker_ends_itself() {
    let stage = or_skip!(Stage::set());
    let lanes = [Census::create(stage.scene.dir().join("lane"))];
    let mut worker = Worker::load(&stage, &lanes, 2, true);
    for at in ["ready", "running", "done"] {
        assert_eq!(worker.heard(&stage)["at"], at);
        worker.tell("0");
    }
    stage.fixture.wait("the second job", |report| (report.opened() == 2).then_some(()));
    worker.kill();
    stage.check_end();
}
