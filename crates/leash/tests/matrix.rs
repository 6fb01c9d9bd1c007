//! Nothing outlives its owner: every containment, every way to end, every tree of the zoo, as root and as a user. Two
//! witnesses that use no code of leash must agree that nothing is left: the census and the outer cgroup.

use std::ffi::OsString;
use std::process::Child;

use rustix::process::Signal;
use serde_json::Value;
use testkit::ground::{Containment, Ground};
use testkit::host::{Channel, Host, Manner};
use testkit::leash::keeper;
use testkit::or_skip;
use testkit::process::Handle;
use testkit::pty::Pty;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::{self, LIMIT};

/// A way in which a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    HostClosesStdin,
    HostExits,
    HostSigkill,
    HostTerm,
    PtyClosed,
    LeashTerm,
    LeashInt,
    LeashHup,
    LeashKill,
    KeeperKill,
    LeaderExits,
    LeaderSigkill,
    Requested,
    MaxAge,
    OwnerPidGone,
}

/// The trees, by their names in `zoo`.
const TREES: [&str; 9] =
    ["polite", "ignores-eof", "stubborn", "setsid", "daemon", "chain", "full-stdout", "hoppers", "bomb"];

/// The trees that fork without end. They run on one CPU, because an overloaded machine makes the whole matrix slow. A
/// few cells below give them all CPUs.
const LOUD: [&str; 2] = ["hoppers", "bomb"];

/// The limit of processes for a loud tree, with its host, leash and keeper.
const BOUND: u32 = 310;

/// One test: every tree on the given ground ends in the given way.
fn check(containment: Containment, end: End, who: Who) {
    check_trees(containment, end, who, &TREES, Cpus::One);
}

/// The CPUs for loud trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cpus {
    One,
    All,
}

fn check_trees(containment: Containment, end: End, who: Who, trees: &[&str], cpus: Cpus) {
    let ground = or_skip!(Ground::prepare(containment, who));
    let failures: Vec<String> = trees
        .iter()
        .filter_map(|tree| {
            let mut scene = ground.scene().expect("the ground was prepared");
            let failure = cell(&ground, &mut scene, end, (tree, cpus)).err()?;
            Some(format!("{containment} {end:?} {tree} as {}: {failure}\n{}", scene.user(), scene.stderr()))
        })
        .collect();
    assert!(failures.is_empty(), "{} of {} trees:\n{}", failures.len(), trees.len(), failures.join("\n"));
}

/// One cell of the matrix.
fn cell(ground: &Ground, scene: &mut Scene, end: End, (tree, cpus): (&str, Cpus)) -> Result<(), String> {
    if LOUD.contains(&tree)
        && let Err(why) = scene.bound(BOUND).and_then(|()| ground.allow(scene))
    {
        testkit::note(&format!("skipped {tree}: {why}"));
        return Ok(());
    }
    let options: &[&str] = match (LOUD.contains(&tree), cpus) {
        (true, Cpus::One) => &["--one-cpu"],
        (true, Cpus::All) | (false, _) => &[],
    };
    let server = scene.tree(tree, options);
    let mut run = Run::start(ground, scene, end, &server)?;
    // A session with an age limit may be off the list before the list is read.
    if tree == "polite" && end != End::MaxAge {
        let listed = listed_containment(scene);
        if listed != ground.containment().name() {
            return Err(format!("`leash ps` says `{listed}`"));
        }
    }
    run.end(scene, end)?;
    let host = run.host.pid();
    scene.wait_gone(&[host]).map_err(|left| left.to_string())?;
    if !run.leash.wait_gone(LIMIT) {
        return Err("leash itself stays".to_owned());
    }
    drop(run);
    scene.wait_gone(&[]).map_err(|left| format!("with the host gone: {left}"))?;
    match cpus {
        Cpus::One => check_receipt(scene, &reasons(end, tree)),
        // With hardly any CPU time, leash and keeper each may take the other for stuck or dead.
        Cpus::All => Ok(()),
    }
}

/// A running host with a leash and a tree.
struct Run {
    host: Host,
    leash: Handle,
    pty: Option<Pty>,
    owner: Option<Owner>,
}

impl Run {
    fn start(ground: &Ground, scene: &mut Scene, end: End, server: &[OsString]) -> Result<Self, String> {
        let manner = Manner {
            // Root's hosts are like Python's, users' hosts like Node's: both channels are combined with every end and
            // every tree.
            channel: match ground.who() {
                Who::Root => Channel::Pipe,
                Who::User => Channel::Socketpair,
            },
            reads: !server.iter().any(|word| word == "full-stdout"),
            ..Manner::default()
        };
        let pty = (end == End::PtyClosed).then(|| Pty::open().expect("cannot open a terminal"));
        let owner = (end == End::OwnerPidGone).then(|| Owner::start(scene));
        let mut options: Vec<OsString> =
            ["--contain", ground.containment().name(), "--grace", "100ms"].map(Into::into).into();
        match end {
            End::Requested => options.extend(["--session", "the-one"].map(OsString::from)),
            End::MaxAge => options.extend(["--max-age", max_age()].map(OsString::from)),
            End::OwnerPidGone => {
                let pid = owner.as_ref().map_or(0, |owner| owner.0.id());
                options.extend(["--owner".to_owned(), format!("pid:{pid}")].map(OsString::from));
            }
            _ => {}
        }
        let words = scene.run_words(&options, server);
        let mut host = scene.host(&manner, pty.as_ref(), &words);
        let leash = host.server();
        match end {
            // The session may be over before a large tree is complete.
            End::MaxAge => scene.census().wait_first(LIMIT),
            _ => scene.census().wait_ready(LIMIT).map(drop),
        }
        .map_err(|heard| format!("the tree did not come up, only: {heard}"))?;
        Ok(Self { host, leash, pty, owner })
    }

    /// Causes the end.
    fn end(&mut self, scene: &mut Scene, end: End) -> Result<(), String> {
        match end {
            End::HostClosesStdin => self.host.close_stdin(),
            End::HostExits => self.host.exit(),
            End::HostSigkill => self.host.signal(Signal::KILL),
            End::HostTerm => self.host.signal(Signal::TERM),
            End::PtyClosed => self.pty.take().expect("this end has a terminal").close(),
            End::LeashTerm => send(&self.leash, Signal::TERM),
            End::LeashInt => send(&self.leash, Signal::INT),
            End::LeashHup => send(&self.leash, Signal::HUP),
            End::LeashKill => send(&self.leash, Signal::KILL),
            End::KeeperKill => send(&keeper(self.leash.pid()), Signal::KILL),
            // Every leader of the zoo exits on this signal, whatever else it ignores.
            End::LeaderExits => send(&leader(scene)?, Signal::USR1),
            End::LeaderSigkill => send(&leader(scene)?, Signal::KILL),
            End::Requested => {
                let answer = scene.answer(["end", "the-one"]);
                if answer.code != 0 {
                    return Err(format!("`leash end`: {answer:?}"));
                }
            }
            End::MaxAge => {}
            End::OwnerPidGone => self.owner = None,
        }
        Ok(())
    }
}

fn send(to: &Handle, signal: Signal) {
    to.signal(signal).expect("cannot signal");
}

fn leader(scene: &mut Scene) -> Result<Handle, String> {
    scene.census().leader().ok_or_else(|| "the tree has no leader".to_owned())
}

/// A process that is not the parent of leash, for `--owner pid:N`. Dropping it ends it.
struct Owner(Child);

impl Owner {
    fn start(scene: &Scene) -> Self {
        Self(scene.zoo(["idle"]).spawn().expect("cannot start an owner"))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The containment in `leash ps`, after leash has finished the start: the server may have been faster.
fn listed_containment(scene: &Scene) -> String {
    wait::until("a containment in `leash ps`", || {
        let list = scene.answer(["ps", "--json"]).json();
        Some(list["sessions"][0]["containment"].as_str()?.to_owned())
    })
}

/// Checks that the receipt agrees with the witnesses and gives one of the `reasons`. Without an outer cgroup no witness
/// sees the exit of leash itself, so the receipt may be a little late.
fn check_receipt(scene: &Scene, reasons: &[&str]) -> Result<(), String> {
    let history = wait::until("a receipt", || {
        let history = scene.answer(["history", "--json"]).json();
        (history["receipts"] != serde_json::json!([])).then_some(history)
    });
    let Some([receipt]) = history["receipts"].as_array().map(Vec::as_slice) else {
        return Err(format!("not one receipt: {history}"));
    };
    let reason = receipt["reason"]["kind"].as_str().unwrap_or_default();
    let gone = receipt["holdings"].as_array().is_some_and(|holdings| holdings.iter().all(is_gone));
    match gone && reasons.contains(&reason) {
        true => Ok(()),
        false => Err(format!("the receipt says: {receipt}")),
    }
}

fn is_gone(holding: &Value) -> bool {
    holding["fate"] == "gone"
}

/// An age that a tree reaches only after it came up. In the virtual machine of `cargo xtask box` everything takes longer.
fn max_age() -> &'static str {
    if std::env::var_os("LEASH_BOX").is_some() { "5s" } else { "300ms" }
}

/// The reasons that the receipt may give. Some ends are noticed in several ways at once, and any of them may be first:
/// also that a server exited at the end of its input or output before leash noticed that end.
fn reasons(end: End, tree: &str) -> Vec<&'static str> {
    let mut reasons = match end {
        End::HostClosesStdin => vec!["stdin_closed"],
        End::HostExits | End::HostSigkill | End::HostTerm => vec!["stdin_closed", "owner_gone"],
        End::PtyClosed => vec!["stdin_closed", "owner_gone", "terminal_closed", "signal"],
        End::LeashTerm | End::LeashInt | End::LeashHup => return vec!["signal"],
        End::LeashKill => return vec!["supervisor_killed"],
        End::KeeperKill => return vec!["keeper_killed"],
        End::LeaderExits | End::LeaderSigkill => return vec!["server_exited"],
        End::Requested => return vec!["requested"],
        End::MaxAge => return vec!["max_age"],
        End::OwnerPidGone => return vec!["owner_gone"],
    };
    if !["ignores-eof", "stubborn", "chain"].contains(&tree) {
        reasons.push("server_exited");
    }
    reasons
}

macro_rules! tests {
    ($containment:expr, $($name:ident: $end:ident $who:ident;)*) => {
        $(
            #[test]
            fn $name() {
                check($containment, End::$end, Who::$who);
            }
        )*
    };
}

macro_rules! matrix {
    ($($module:ident: $containment:ident;)*) => {
        $(
            mod $module {
                use super::*;

                tests! {
                    Containment::$containment,
                    host_closes_stdin_as_root: HostClosesStdin Root;
                    host_closes_stdin_as_user: HostClosesStdin User;
                    host_exits_as_root: HostExits Root;
                    host_exits_as_user: HostExits User;
                    host_sigkill_as_root: HostSigkill Root;
                    host_sigkill_as_user: HostSigkill User;
                    host_term_as_root: HostTerm Root;
                    host_term_as_user: HostTerm User;
                    pty_closed_as_root: PtyClosed Root;
                    pty_closed_as_user: PtyClosed User;
                    leash_term_as_root: LeashTerm Root;
                    leash_term_as_user: LeashTerm User;
                    leash_int_as_root: LeashInt Root;
                    leash_int_as_user: LeashInt User;
                    leash_hup_as_root: LeashHup Root;
                    leash_hup_as_user: LeashHup User;
                    leash_kill_as_root: LeashKill Root;
                    leash_kill_as_user: LeashKill User;
                    keeper_kill_as_root: KeeperKill Root;
                    keeper_kill_as_user: KeeperKill User;
                    leader_exits_as_root: LeaderExits Root;
                    leader_exits_as_user: LeaderExits User;
                    leader_sigkill_as_root: LeaderSigkill Root;
                    leader_sigkill_as_user: LeaderSigkill User;
                    leash_end_as_root: Requested Root;
                    leash_end_as_user: Requested User;
                    max_age_as_root: MaxAge Root;
                    max_age_as_user: MaxAge User;
                    owner_pid_gone_as_root: OwnerPidGone Root;
                    owner_pid_gone_as_user: OwnerPidGone User;
                }
            }
        )*
    };
}

matrix! {
    sealed: Sealed;
    unit: Unit;
    leaf: Leaf;
    reaper: Reaper;
}

/// Loud trees on all CPUs: leash gets a three-hundredth of one, which must be enough.
mod loud_on_all_cpus {
    use super::*;

    macro_rules! loud {
        ($($name:ident: $containment:ident $end:ident $who:ident;)*) => {
            $(
                #[test]
                fn $name() {
                    check_trees(Containment::$containment, End::$end, Who::$who, &LOUD, Cpus::All);
                }
            )*
        };
    }

    loud! {
        sealed_host_sigkill_as_root: Sealed HostSigkill Root;
        sealed_host_sigkill_as_user: Sealed HostSigkill User;
        sealed_leash_kill_as_root: Sealed LeashKill Root;
        sealed_leash_kill_as_user: Sealed LeashKill User;
        sealed_keeper_kill_as_user: Sealed KeeperKill User;
        unit_host_sigkill_as_user: Unit HostSigkill User;
        unit_leash_kill_as_user: Unit LeashKill User;
        unit_keeper_kill_as_user: Unit KeeperKill User;
        leaf_host_sigkill_as_root: Leaf HostSigkill Root;
        leaf_host_sigkill_as_user: Leaf HostSigkill User;
        leaf_leash_kill_as_root: Leaf LeashKill Root;
        leaf_leash_kill_as_user: Leaf LeashKill User;
        leaf_keeper_kill_as_user: Leaf KeeperKill User;
        reaper_host_sigkill_as_root: Reaper HostSigkill Root;
        reaper_host_sigkill_as_user: Reaper HostSigkill User;
        reaper_leash_kill_as_root: Reaper LeashKill Root;
        reaper_leash_kill_as_user: Reaper LeashKill User;
        reaper_keeper_kill_as_user: Reaper KeeperKill User;
    }
}

/// `group` promises little, keeps that, and says what it does not promise.
mod group {
    use super::*;

    fn start(scene: &mut Scene, tree: &str) -> Host {
        let words = scene.run_words(["--contain", "group", "--grace", "100ms"], &scene.tree::<&str>(tree, []));
        let host = scene.host(&Manner::default(), None, &words);
        scene.census().wait_ready(LIMIT).expect("the tree did not come up");
        host
    }

    fn group_dies(tree: &str, who: Who) {
        let mut scene = or_skip!(Scene::set(who));
        let mut host = start(&mut scene, tree);
        host.exit();
        let gone = scene.wait_gone(&[]);
        assert!(gone.is_ok(), "{tree}: {}\n{}", gone.unwrap_err(), scene.stderr());
    }

    macro_rules! group_dies {
        ($($name:ident: $tree:literal $who:ident;)*) => {
            $(
                #[test]
                fn $name() {
                    group_dies($tree, Who::$who);
                }
            )*
        };
    }

    group_dies! {
        polite_dies_as_root: "polite" Root;
        polite_dies_as_user: "polite" User;
        stubborn_dies_as_root: "stubborn" Root;
        stubborn_dies_as_user: "stubborn" User;
        chain_dies_as_root: "chain" Root;
        chain_dies_as_user: "chain" User;
    }

    /// leash does not promise anything about the survival of a daemon, but must not report a proved end if it survived.
    fn daemon_is_not_called_gone(who: Who) {
        let mut scene = or_skip!(Scene::set(who));
        let mut host = start(&mut scene, "daemon");
        let listed = scene.answer(["ps", "-v"]);
        assert!(listed.stdout.contains("daemon"), "`ps -v` does not say what `group` lacks: {listed:?}");

        let leash = host.server();
        host.close_stdin();
        assert!(leash.wait_gone(LIMIT), "leash did not end");
        let history = scene.answer(["history", "--json"]).json();
        let holding = &history["receipts"][0]["holdings"][0];
        let survived = scene.census().is_populated();
        assert!(!survived || holding["fate"] == "left", "a daemon survived, and the receipt says: {history}");
    }

    #[test]
    fn daemon_is_not_called_gone_as_root() {
        daemon_is_not_called_gone(Who::Root);
    }

    #[test]
    fn daemon_is_not_called_gone_as_user() {
        daemon_is_not_called_gone(Who::User);
    }
}
