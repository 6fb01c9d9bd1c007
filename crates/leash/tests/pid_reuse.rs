//! leash never signals a recorded pid that now belongs to another process. Shown in a PID namespace with so few pids
//! that they are reused after a hundred forks.

use std::collections::BTreeSet;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal};
use testkit::host::{Host, Manner};
use testkit::leash::keeper;
use testkit::namespace::{inside, small_pid_max_is_private};
use testkit::or_skip;
use testkit::process::Handle;
use testkit::scene::Scene;
use testkit::user::{User, Who};
use testkit::wait::{self, LIMIT};

/// The lowest pid that the kernel reuses.
const RESERVED: u32 = 300;

/// With this limit a hundred pids are reusable.
const PID_MAX: &[&str] = &["--pid-max", "400"];

/// Runs `case` in such a namespace, after all other pids were used.
fn check(test: &str, case: fn()) {
    or_skip!(User::find(Who::Root));
    or_skip!(small_pid_max_is_private());
    if inside(test, PID_MAX) {
        while end(idle()) < RESERVED {}
        case();
    }
}

/// Ends a process and returns its pid.
fn end(mut process: Child) -> u32 {
    process.kill().expect("cannot kill");
    process.wait().expect("cannot wait");
    process.id()
}

/// Processes that got the pids of dead ones. Dropping it kills them.
struct Strangers(Vec<Child>);

impl Strangers {
    /// Starts processes until each of `numbers` belongs to one.
    fn take(numbers: &[Pid]) -> Self {
        let mut wanted: BTreeSet<u32> = numbers.iter().map(|pid| pid.as_raw_nonzero().get() as u32).collect();
        let mut strangers = Self(Vec::new());
        wait::until("the numbers to come round", || {
            let child = idle();
            match wanted.remove(&child.id()) {
                true => strangers.0.push(child),
                false => drop(end(child)),
            }
            wanted.is_empty().then_some(())
        });
        strangers
    }

    fn check_alive(&mut self) {
        for stranger in &mut self.0 {
            let ended = stranger.try_wait().expect("cannot wait for a stranger");
            assert_eq!(ended, None, "a stranger with the number {} was ended", stranger.id());
        }
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        for stranger in &mut self.0 {
            let _ = stranger.kill();
            let _ = stranger.wait();
        }
    }
}

/// A process that has nothing to do with this test; any signal would end it.
#[expect(clippy::disallowed_methods, reason = "strangers are not on a scene")]
fn idle() -> Child {
    let mut command = std::process::Command::new(testkit::leash::zoo());
    command.arg("idle").stdin(Stdio::null()).spawn().expect("cannot start a stranger")
}

/// A run on a scene, with every pid that leash has recorded about it.
struct Run {
    host: Host,
    supervisor: Handle,
    keeper: Handle,
    leader: Handle,
}

impl Run {
    fn start(scene: &mut Scene, options: &[&str]) -> Self {
        let words = scene.run_words(options, &scene.tree::<&str>("setsid", []));
        let mut host = scene.host(&Manner::default(), None, &words);
        scene.census().wait_ready(LIMIT).expect("the tree did not come up");
        let supervisor = host.server();
        let keeper = keeper(supervisor.pid());
        let leader = scene.census().leader().expect("the tree has a leader");
        Self { host, supervisor, keeper, leader }
    }

    /// Kills all of it so that no process can write a receipt. Returns the pids that are free now, and still in the
    /// ledger.
    fn kill_all(mut self, scene: &mut Scene) -> Vec<Pid> {
        let mut numbers = vec![self.supervisor.pid(), self.keeper.pid(), self.leader.pid()];
        numbers.extend(scene.census().holders().iter().map(|process| process.pid));
        for signal in [Signal::STOP, Signal::KILL] {
            self.supervisor.signal(signal).expect("cannot signal leash");
            self.keeper.signal(signal).expect("cannot signal the keeper");
        }
        scene.census().kill();
        // The host reaps leash, and the init of the namespace reaps the others.
        self.host.wait_ended(LIMIT).expect("the host did not see leash end");
        self.host.exit();
        self.host.wait();
        scene.wait_gone(&[]).unwrap_or_else(|left| panic!("{left}"));
        assert!(!scene.ledger().is_empty(), "nothing is in the ledger any more");
        numbers
    }
}

fn scene() -> Scene {
    Scene::set(Who::Root).expect("root can set a scene")
}

#[test]
fn sweep_spares_strangers() {
    check("sweep_spares_strangers", || {
        let mut scene = scene();
        let numbers = Run::start(&mut scene, &["--contain", "reaper"]).kill_all(&mut scene);
        let mut strangers = Strangers::take(&numbers);

        let zoo = scene.zoo_path();
        let mut next = scene.leash(["run", "--contain", "reaper", "--"]);
        let status = next.arg(zoo).args(["exit", "0"]).status().expect("cannot start leash");
        assert!(status.success(), "{status}");
        strangers.check_alive();
        assert!(scene.ledger().is_empty(), "still in the ledger: {:?}", scene.ledger());
    });
}

#[test]
fn end_spares_strangers() {
    check("end_spares_strangers", || {
        let mut scene = scene();
        let run = Run::start(&mut scene, &["--contain", "reaper", "--session", "the-one"]);
        let numbers = run.kill_all(&mut scene);
        let mut strangers = Strangers::take(&numbers);

        // Whatever it reports about a session without processes: it must not search for it by pid.
        let answer = scene.answer(["end", "the-one"]);
        strangers.check_alive();
        assert!(!scene.census().is_populated(), "{answer:?}");
    });
}

#[test]
fn reused_pid_of_the_owner_is_not_taken_for_the_owner() {
    check("reused_pid_of_the_owner_is_not_taken_for_the_owner", || {
        let mut scene = scene();
        let owner = idle();
        let number = Pid::from_child(&owner);
        let owner_option = format!("pid:{}", owner.id());
        let run = Run::start(&mut scene, &["--contain", "reaper", "--grace", "100ms", "--owner", &owner_option]);

        // While both are stopped the owner dies and its pid is reused.
        for process in [&run.supervisor, &run.keeper] {
            process.signal(Signal::STOP).expect("cannot stop");
        }
        end(owner);
        let mut stranger = Strangers::take(&[number]);
        for process in [&run.supervisor, &run.keeper] {
            process.signal(Signal::CONT).expect("cannot continue");
        }
        scene.wait_gone(&[run.host.pid()]).unwrap_or_else(|left| panic!("{left}"));
        stranger.check_alive();
    });
}

/// A pid on the command line without any process is refused at once.
#[test]
fn pid_of_an_owner_without_process_is_refused() {
    check("pid_of_an_owner_without_process_is_refused", || {
        let mut scene = scene();
        let owner_option = format!("pid:{}", end(idle()));
        let mut words = scene.run_words(["--owner", &owner_option], &scene.tree::<&str>("stubborn", []));
        let mut command = scene.command(words.remove(0));
        let output = command.args(words).stdin(Stdio::piped()).output().expect("cannot start leash");
        assert!(!output.status.success(), "{output:?}");
        scene.wait_gone(&[]).unwrap_or_else(|left| panic!("{left}"));
        assert!(scene.census().wait_first(std::time::Duration::ZERO).is_err(), "the server was started");
    });
}
