//! leash is killed during its start; leash and keeper are killed together; a hundred leashes are killed at once.

use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use testkit::ground::{Containment, Ground};
use testkit::host::Manner;
use testkit::leash::keeper;
use testkit::or_skip;
use testkit::process::{self, Handle, Process};
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::{self, LIMIT};

/// The number of kills of leash at its start, per containment and user.
const ROUNDS: u32 = 300;

/// The latest of these kills, counted from the exec of leash.
const LATEST: Duration = Duration::from_millis(6);

/// A leash whose parent is the test itself. Dropping it kills and reaps it.
struct Leash(Child);

impl Leash {
    fn start(scene: &Scene, options: &[&str], tree: &str, size: &str) -> Self {
        let words = scene.run_words(options, &scene.tree(tree, ["--size", size]));
        let mut command = scene.command(&words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::null());
        Self(command.spawn().expect("cannot start leash"))
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// Waits until the child has executed leash. With a user manager, a shell runs before that.
    fn wait_exec(&self, scene: &Scene) {
        let leash = scene.leash_path();
        let name = leash.file_name().and_then(|name| name.to_str()).expect("leash has a name");
        wait::until("the exec of leash", || {
            let process = Process::read(self.pid())?;
            // The kernel keeps 15 bytes of it.
            (name.starts_with(&process.name) || !process.is_alive()).then_some(())
        });
    }

    /// Kills and reaps it. Its stdin stays open, so that the end of input does not end the tree.
    fn kill(&mut self) {
        self.0.kill().expect("cannot kill leash");
        // `Child::wait` would close stdin.
        wait::until("the death of leash", || self.0.try_wait().expect("cannot wait for leash"));
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn killed_at_its_start(containment: Containment, who: Who) {
    let ground = or_skip!(Ground::prepare(containment, who));
    let mut scene = ground.scene().expect("the ground was prepared");
    let mut came_up = 0;
    for round in 0..ROUNDS {
        scene.census().forget();
        let delay = LATEST * round / ROUNDS;
        let mut leash = Leash::start(&scene, &["--contain", containment.name(), "--grace", "0"], "mixed", "5");
        leash.wait_exec(&scene);
        wait::step(delay);
        leash.kill();
        if let Err(left) = scene.wait_gone(&[]) {
            panic!("{containment} as {}, killed after {delay:?} (round {round}): {left}", scene.user());
        }
        came_up += u32::from(scene.census().wait_first(Duration::ZERO).is_ok());
    }
    testkit::note(&format!("{containment} as {}: the server had begun in {came_up} of {ROUNDS} rounds", scene.user()));
    check_swept(&scene);
}

/// leash and keeper are both killed before the start is over. The next start ends the rest, except in `reaper`, where
/// nothing identifies the youngest processes.
fn both_killed_at_its_start(containment: Containment, who: Who) {
    let ground = or_skip!(Ground::prepare(containment, who));
    let scene = ground.scene().expect("the ground was prepared");
    for round in 0..ROUNDS / 3 {
        let delay = 2 * LATEST * round / (ROUNDS / 3);
        let mut leash = Leash::start(&scene, &["--contain", containment.name(), "--grace", "0"], "mixed", "5");
        leash.wait_exec(&scene);
        wait::step(delay);
        let parent = leash.pid().as_raw_nonzero().get();
        let keepers = process::children(leash.pid()).into_iter();
        let keepers: Vec<Handle> =
            keepers.filter_map(|keeper| Handle::open(keeper.pid, |now| now.parent == parent)).collect();
        for keeper in &keepers {
            keeper.signal(Signal::STOP).expect("cannot stop the keeper");
        }
        leash.kill();
        for keeper in &keepers {
            keeper.signal(Signal::KILL).expect("cannot kill the keeper");
            assert!(keeper.wait_gone(LIMIT), "SIGKILL does not work");
        }
        if containment == Containment::Leaf {
            // A server that was being started, and dies with its keeper, may hold the lock for a moment longer.
            wait::until("a start that sweeps", || {
                start_next(&scene);
                scene.ledger().is_empty().then_some(())
            });
        }
        if let Err(left) = scene.wait_gone(&[]) {
            panic!("{containment} as {}, both killed after {delay:?} (round {round}): {left}", scene.user());
        }
    }
    check_swept(&scene);
}

/// The host dies while leash starts.
fn host_killed_at_its_start(containment: Containment, who: Who) {
    let ground = or_skip!(Ground::prepare(containment, who));
    let scene = ground.scene().expect("the ground was prepared");
    for round in 0..ROUNDS / 3 {
        // The host's own start comes first.
        let delay = 3 * LATEST * round / (ROUNDS / 3);
        let options = ["--contain", containment.name(), "--grace", "0"];
        let words = scene.run_words(options, &scene.tree("mixed", ["--size", "5"]));
        let mut host = scene.host(&Manner::default(), None, &words);
        wait::step(delay);
        host.signal(Signal::KILL);
        host.wait();
        if let Err(left) = scene.wait_gone(&[]) {
            panic!("{containment} as {}, host killed after {delay:?} (round {round}): {left}", scene.user());
        }
    }
    check_swept(&scene);
}

fn both_killed_together(containment: Containment, who: Who) {
    let ground = or_skip!(Ground::prepare(containment, who));
    let mut scene = ground.scene().expect("the ground was prepared");
    let options = ["--contain", containment.name(), "--grace", "100ms"];
    let words = scene.run_words(options, &scene.tree::<&str>("mixed", []));
    let mut host = scene.host(&Manner::default(), None, &words);
    let size = scene.census().wait_ready(LIMIT).expect("the tree did not come up");
    wait::until("all members in the ledger", || (scene.recorded_members() >= size).then_some(()));

    let supervisor = host.server();
    let keeper = keeper(supervisor.pid());
    // Both are stopped first, so that neither can act between the two kills.
    for signal in [Signal::STOP, Signal::KILL] {
        supervisor.signal(signal).expect("cannot signal leash");
        keeper.signal(signal).expect("cannot signal the keeper");
    }
    assert!(supervisor.wait_gone(LIMIT) && keeper.wait_gone(LIMIT), "SIGKILL does not work");
    match containment {
        Containment::Sealed | Containment::Unit => {}
        // The kernel and systemd do not end these: the next start of leash ends the rest.
        Containment::Leaf | Containment::Reaper => check_swept(&scene),
    }
    let gone = scene.wait_gone(&[host.pid()]);
    assert!(gone.is_ok(), "{containment}: {}\n{}", gone.unwrap_err(), scene.stderr());
    check_swept(&scene);
    check_swept_receipt(&scene, containment);
}

/// Starts leash once more, for a server that exits at once.
fn start_next(scene: &Scene) {
    let zoo = scene.zoo_path();
    let mut command = scene.leash(["run", "--"]);
    let status = command.arg(zoo).args(["exit", "0"]).status().expect("cannot start leash");
    assert!(status.success(), "the next start of leash: {status}");
}

/// Checks that after any start of leash no record of a dead leash is left.
fn check_swept(scene: &Scene) {
    start_next(scene);
    let left = scene.ledger();
    assert!(left.is_empty(), "still in the ledger: {left:?}");
}

/// Checks that a sweep reports what it can prove, and no more: descent was lost with the keeper, and a process can
/// leave a cgroup.
fn check_swept_receipt(scene: &Scene, containment: Containment) {
    let history = scene.answer(["history", "--json"]).json();
    let swept =
        history["receipts"].as_array().into_iter().flatten().find(|receipt| receipt["reason"]["kind"] == "swept");
    let Some(receipt) = swept else {
        panic!("no receipt of the sweep: {history}");
    };
    let tree = &receipt["holdings"][0];
    if containment == Containment::Sealed {
        assert_eq!(tree["fate"], "gone", "{receipt}");
    } else {
        assert_eq!(tree["fate"], "left", "{receipt}");
        let why = tree["left"][0]["why"].as_str().unwrap_or_default();
        assert!(why.starts_with("all recorded processes"), "{receipt}");
    }
}

fn hundred_killed_at_once(containment: Containment, who: Who) {
    let ground = or_skip!(Ground::prepare(containment, who));
    let mut scene = ground.scene().expect("the ground was prepared");
    let options: &[&str] = match containment {
        // A user manager that gets a hundred requests for scopes at once is too late with some, which then get the next
        // best containment.
        Containment::Unit => &["--grace", "100ms"],
        _ => &["--grace", "100ms", "--contain", containment.name()],
    };
    let mut leashes: Vec<Leash> = (0..100).map(|_| Leash::start(&scene, options, "setsid", "2")).collect();
    scene.census().wait_all_ready(leashes.len(), LIMIT).expect("the trees did not come up");
    for leash in &mut leashes {
        leash.0.kill().expect("cannot kill leash");
    }
    let gone = scene.wait_gone(&[]);
    assert!(gone.is_ok(), "{containment}: {}", gone.unwrap_err());
    drop(leashes);
    check_swept(&scene);
}

macro_rules! races {
    ($($module:ident: $containment:ident $who:ident;)*) => {
        $(
            mod $module {
                use super::*;

                #[test]
                fn killed_at_its_start() {
                    super::killed_at_its_start(Containment::$containment, Who::$who);
                }

                #[test]
                fn host_killed_at_its_start() {
                    super::host_killed_at_its_start(Containment::$containment, Who::$who);
                }

                #[test]
                fn both_killed_together() {
                    super::both_killed_together(Containment::$containment, Who::$who);
                }

                #[test]
                fn hundred_killed_at_once() {
                    super::hundred_killed_at_once(Containment::$containment, Who::$who);
                }
            }
        )*
    };
}

races! {
    sealed_as_root: Sealed Root;
    sealed_as_user: Sealed User;
    unit_as_root: Unit Root;
    unit_as_user: Unit User;
    leaf_as_root: Leaf Root;
    leaf_as_user: Leaf User;
    reaper_as_root: Reaper Root;
    reaper_as_user: Reaper User;
}

macro_rules! both_killed_at_its_start {
    ($($name:ident: $containment:ident $who:ident;)*) => {
        mod both_killed_at_its_start {
            use super::*;

            $(
                #[test]
                fn $name() {
                    super::both_killed_at_its_start(Containment::$containment, Who::$who);
                }
            )*
        }
    };
}

both_killed_at_its_start! {
    sealed_as_root: Sealed Root;
    sealed_as_user: Sealed User;
    unit_as_root: Unit Root;
    unit_as_user: Unit User;
    leaf_as_root: Leaf Root;
    leaf_as_user: Leaf User;
}
