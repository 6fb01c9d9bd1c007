//! A process of leash is killed while it copies. Another one goes on with the copy until the tree is ended.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal};
use testkit::leash::keeper;
use testkit::or_skip;
use testkit::process::Handle;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait;

use super::{check_gone, lines, run_words};

/// A helper of the server that writes numbered lines, survives SIGTERM and SIGPIPE, and reports a write that fails. The
/// server waits for it. `progress` has the last number whose write has worked.
const HELPER: &str = r#"
    trap '' TERM PIPE
    n=0
    while n=$((n + 1)); do
        echo "helper $n" >&2 || { echo "$n" > broken; exit; }
        echo "$n" > progress.new; mv progress.new progress
        sleep 0.01
    done
"#;

fn start(scene: &Scene) -> Child {
    fs::write(scene.dir().join("helper.sh"), HELPER).expect("a script");
    let words = run_words(scene, &["--grace", "1s"], "setsid sh helper.sh & read end");
    let words: Vec<_> = words.into_iter().collect();
    let mut command = scene.command(&words[0]);
    command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().expect("cannot start leash")
}

fn progress(scene: &Scene) -> u64 {
    fs::read_to_string(scene.dir().join("progress")).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Kills a process of leash; the host then gets a line that was written after its death, and no line is missing before it.
fn check(find: impl Fn(Pid) -> Handle) {
    let scene = or_skip!(Scene::set(Who::User));
    let mut leash = start(&scene);
    let mut said = BufReader::new(leash.stderr.take().expect("a pipe")).lines();
    wait::until("the first lines", || (progress(&scene) > 20).then_some(()));
    let victim = find(Pid::from_child(&leash));
    victim.signal(Signal::KILL).expect("cannot kill it");
    assert!(victim.wait_gone(wait::LIMIT));
    let before = progress(&scene);
    let mut numbers = Vec::new();
    for line in said.by_ref() {
        let line = line.expect("it can be read");
        let number = line.strip_prefix("helper ").map(|number| number.parse::<u64>().expect("a whole line"));
        numbers.extend(number);
        if number > Some(before + 5) {
            break;
        }
    }
    let last = numbers.last().copied().expect("lines");
    assert!(last > before + 5, "the host gets nothing after {last}; {before} was written before the death");
    assert_eq!(numbers, (1..=last).collect::<Vec<_>>(), "the host gets every line once");
    // The host goes on reading, and the tree ends because leash was killed.
    said.for_each(drop);
    leash.wait().expect("it is ours");
    check_gone(&scene);
    assert!(!scene.dir().join("broken").exists(), "the server's stderr was broken");
    let logged = lines(&scene, "x");
    assert!(logged.contains(&format!("helper {last}")), "the log goes on, too: {:?}", logged.last());
}

#[test]
fn killed_keeper_is_replaced_by_the_supervisor() {
    check(keeper);
}

#[test]
fn keeper_goes_on_without_its_supervisor() {
    check(|leash| Handle::open(leash, |_| true).expect("it lives"));
}

/// Both are killed: the pipe breaks, as when a host dies. The kernel kills the server with its keeper, and the next start of
/// leash ends the rest.
#[test]
fn both_killed_break_the_pipe() {
    let scene = or_skip!(Scene::set(Who::User));
    let mut leash = start(&scene);
    let mut stderr = leash.stderr.take().expect("a pipe");
    let reader = std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    wait::until("the first lines", || (progress(&scene) > 20).then_some(()));
    let pid = Pid::from_child(&leash);
    let keeper = keeper(pid);
    let leash_itself = Handle::open(pid, |_| true).expect("it lives");
    for signal in [Signal::STOP, Signal::KILL] {
        leash_itself.signal(signal).expect("cannot signal leash");
        keeper.signal(signal).expect("cannot signal the keeper");
    }
    leash.wait().expect("it is ours");
    wait::until("the helper to notice", || scene.dir().join("broken").exists().then_some(()));
    assert_eq!(scene.answer(["run", "--", "true"]).code, 0);
    reader.join().expect("it reads").expect("to the end");
    check_gone(&scene);
    assert!(!lines(&scene, "x").is_empty());
}
