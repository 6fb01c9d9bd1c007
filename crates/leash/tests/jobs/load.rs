//! Many jobs of one worker: after each of them nothing of it is left, and neither worker nor daemon grows.

use rustix::process::Pid;
use serde_json::Value;
use testkit::census::Census;
use testkit::{gateway, or_skip};

use super::stage::{Stage, Worker, size};

#[test]
fn jobs_in_a_row_leave_nothing() {
    check(1, size("LEASH_JOBS_IN_A_ROW", 24));
}

#[test]
fn jobs_at_a_time_leave_nothing() {
    check(20, size("LEASH_JOBS", 80));
}

/// The measurements after each job.
#[derive(Debug, Default)]
struct Samples {
    daemon_memory: Vec<u64>,
    daemon_descriptors: Vec<u64>,
    worker_heap: Vec<u64>,
    worker_descriptors: Vec<u64>,
}

fn check(lanes: usize, jobs: usize) {
    let stage = or_skip!(Stage::set());
    let lanes: Vec<Census> =
        (0..lanes).map(|lane| Census::create(stage.scene.dir().join(format!("lane-{lane}")))).collect();
    let mut worker = Worker::load(&stage, &lanes, jobs, true);
    let ready = worker.heard(&stage);
    let daemon = ready["daemon"].as_i64().and_then(|pid| Pid::from_raw(pid as i32)).expect("the worker has a daemon");
    let mut samples = Samples::default();
    loop {
        let said = worker.heard(&stage);
        let lane = said["lane"].as_u64().unwrap_or_default() as usize;
        match said["at"].as_str() {
            Some("running") => check_running(&stage, &lanes[lane], &said),
            Some("done") => {
                check_done(&stage, &lanes[lane], &said);
                samples.take(daemon, &worker, &said);
            }
            Some("end") => break,
            _ => panic!("{said}\n{}", stage.scene.stderr()),
        }
        worker.tell(&lane.to_string());
    }
    assert_eq!((stage.fixture.wait_deleted(), samples.worker_heap.len()), (jobs as u64, jobs));
    worker.end_input();
    assert!(worker.wait().success(), "{}", stage.scene.stderr());
    samples.check_flat(lanes.len());
    stage.check_end();
}

/// Checks that the witnesses see a running job.
fn check_running(stage: &Stage, lane: &Census, said: &Value) {
    assert!(lane.is_populated(), "{said}");
    if stage.scene.outer().is_some() {
        // npm, sh and the server with its helper; the other server with its helper.
        let marked = stage.marked(said["mark"].as_str().expect("a job has a mark"));
        assert!(marked.len() >= 6, "{said}: {marked:#?}");
    }
    let report = stage.fixture.report();
    assert!(report.open().iter().any(|open| said["upstream"] == open.as_str()), "{said}: {:?}", report.open());
}

/// After the call that ended the job has returned, its processes and its upstream session must be gone already.
fn check_done(stage: &Stage, lane: &Census, done: &Value) {
    assert!(!lane.is_populated(), "{:#?} are left of {done}", lane.holders());
    let mark = done["mark"].as_str().expect("a job has a mark");
    let marked: Vec<String> = stage.marked(mark).iter().map(ToString::to_string).collect();
    assert_eq!(marked, [""; 0], "{done}");
    assert_eq!(done["gone"], true, "{done}");
    assert_eq!(done["held"], serde_json::json!(["tree", "tree", "upstream"]), "{done}");
    let upstream = done["upstream"].as_str().expect("a job has an upstream session");
    let report = stage.fixture.report();
    assert!(!report.open().iter().any(|open| open == upstream), "{done}");
    assert_eq!(report.deleted().get(upstream), Some(&1), "{done}");
}

impl Samples {
    fn take(&mut self, daemon: Pid, worker: &Worker, done: &Value) {
        self.daemon_memory.push(gateway::memory(daemon));
        self.daemon_descriptors.push(descriptors(daemon));
        self.worker_heap.push(done["heap"].as_u64().expect("a job has a heap"));
        self.worker_descriptors.push(descriptors(worker.pid()));
    }

    fn check_flat(&self, lanes: usize) {
        check_flat("the daemon's memory", &self.daemon_memory, lanes, 1 << 20);
        check_flat("the daemon's descriptors", &self.daemon_descriptors, lanes, 2 * lanes as u64);
        check_flat("the worker's memory", &self.worker_heap, lanes, 1 << 20);
        check_flat("the worker's descriptors", &self.worker_descriptors, lanes, 2 * lanes as u64);
    }
}

/// The daemon remembers the last hundred sessions, so it may grow until then.
const REMEMBERED: usize = 100;

/// Compares the median of the first hundred jobs after that with the median of the last hundred: 5% are noise. With
/// fewer jobs, the allocator and a few connections can differ by `slack` between two moments.
fn check_flat(what: &str, samples: &[u64], lanes: usize, slack: u64) {
    let samples = &samples[REMEMBERED.max(lanes).min(samples.len() / 3)..];
    let part = (samples.len() / 3).clamp(1, 100);
    let (first, last) = (median(&samples[..part]), median(&samples[samples.len() - part..]));
    testkit::note(&format!("{what}: {first} in the first {part} jobs, {last} in the last"));
    let slack = if part == 100 { 0 } else { slack };
    assert!(last <= first + first / 20 + slack, "{what} grew from {first} to {last}: {samples:?}");
}

fn median(samples: &[u64]) -> u64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

fn descriptors(pid: Pid) -> u64 {
    let path = format!("/proc/{}/fd", pid.as_raw_nonzero());
    std::fs::read_dir(path).expect("the process is gone").count() as u64
}
