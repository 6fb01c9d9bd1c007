//! That chaos finds what it looks for: leashes that break one promise each, and the failure that is printed, made shorter and
//! played again. The last one is no broken leash, and nothing is found.

#![expect(clippy::disallowed_methods, reason = "it starts the program that is tested")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::leash::{fixture, leash, zoo};
use testkit::user::Who;

/// A leash in a directory of its own, which is gone with it.
struct Fake {
    dir: PathBuf,
    /// One of its own: it names the file that a failure is written to.
    seed: u64,
}

impl Fake {
    /// `run` and `connect` do what these lines of a shell script do; the resident of the world, and all else, is left to the real one.
    fn new(run: &str, connect: &str) -> Self {
        let dir = std::env::temp_dir().join(testkit::unique("leash-fake"));
        fs::create_dir(&dir).expect("cannot make a directory");
        let script = format!(
            "#!/bin/sh\nreal='{}'\ncase \"$*\" in *census-of-the-resident*) exec \"$real\" \"$@\" ;; esac\n\
             case \"$1\" in\nrun)\n{run}\n;;\nconnect)\n{connect}\n;;\nesac\nexec \"$real\" \"$@\"\n",
            leash().display(),
        );
        let file = dir.join("leash");
        fs::write(&file, script).expect("cannot write the script");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("cannot make it a program");
        Self { dir, seed: testkit::random() }
    }

    /// A file next to it.
    fn file(&self, name: &str, text: &str) -> PathBuf {
        let file = self.dir.join(name);
        fs::write(&file, text).expect("cannot write a file");
        file
    }

    /// Actions of whoever runs the tests, where descent keeps trees together: that is to be had everywhere.
    fn plan(&self, actions: &str) -> String {
        let who = if Who::me() == Who::Root { "root" } else { "user" };
        format!("chaos 1 seed={} episode=3 reaper {who} grace=50\n{actions}", self.seed)
    }

    /// Plays these actions with it.
    fn play(&self, actions: &str, tries: &str) -> Output {
        play(&self.dir.join("leash"), &self.file("plan", &self.plan(actions)), tries)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn play(leash: &Path, plan: &Path, tries: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["chaos", "--play", "--patience", "3", "--tries", tries, "--replay"]).arg(plan);
    command.env("LEASH_BIN", leash).env("ZOO_BIN", zoo()).env("FIXTURE_BIN", fixture());
    command.output().expect("cannot start xtask")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn check(fake: &Fake, actions: &str, complaint: &str) {
    let output = fake.play(actions, "0");
    let said = said(&output);
    assert!(!output.status.success() && said.contains(complaint), "not found: {complaint}\n{said}");
}

const RUN: &str = "start 0 pipe run polite honest grace=50 nothing=0 wait\n";
const CONNECT: &str = "start 0 pipe connect polite honest grace=50 nothing=0 wait\n";

/// What starts the server, and never thinks of it again.
const NO_LEASH: &str = r#"while [ "$1" != -- ]; do shift; done; shift; exec "$@""#;

#[test]
fn a_tree_that_outlives_its_owner_is_found() {
    let fake = Fake::new(NO_LEASH, "");
    check(&fake, &RUN.replace("polite", "stubborn"), "survived its owner");
}

#[test]
fn a_missing_receipt_is_found() {
    let fake = Fake::new(r#"XDG_STATE_HOME="$LEASH_RUNTIME_DIR/../elsewhere" exec "$real" "$@""#, "");
    check(&fake, RUN, "no receipt for the tree of");
}

#[test]
fn what_stays_in_the_ledger_is_found() {
    let fake = Fake::new(r#": > "$LEASH_RUNTIME_DIR/leftover"; exec "$real" "$@""#, "");
    check(&fake, RUN, "left in the runtime directory: leftover");
}

/// A process of this scene alone can have both variables.
#[test]
fn a_bystander_that_is_hit_is_found() {
    let by_mark = r#"for file in $(grep -lzx LEASH_ID=somebody-elses /proc/[0-9]*/environ 2> /dev/null); do
            grep -qzxF "LEASH_RUNTIME_DIR=$LEASH_RUNTIME_DIR" "$file" && kill -9 "$(basename "${file%/environ}")"
        done
        exec "$real" "$@""#;
    check(&Fake::new(by_mark, ""), RUN, "the bystander with a mark was hit");
}

/// As bridges are that do not end what they open.
const BRIDGE: &str = r#"
import sys, urllib.request
headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
for line in sys.stdin:
    request = urllib.request.Request(sys.argv[-1], line.encode(), headers)
    with urllib.request.urlopen(request) as answer:
        session = answer.headers.get("mcp-session-id")
        if session:
            headers["mcp-session-id"] = session
        for said in answer.read().decode().splitlines():
            if said.startswith(("data: {", "{")):
                print(said.removeprefix("data: "), flush=True)
"#;

#[test]
fn an_open_upstream_session_is_found() {
    let fake = Fake::new("", r#"exec python3 "$(dirname "$0")/bridge.py" "$@""#);
    fake.file("bridge.py", BRIDGE);
    check(&fake, CONNECT, "is open, and no receipt says so");
}

#[test]
fn a_failure_is_printed_made_shorter_and_played_again() {
    let fake = Fake::new(NO_LEASH, "");
    let matters = RUN.replace("start 0", "start 2").replace("polite", "stubborn");
    let actions = format!("{RUN}call 0\n{}pause 5\n{matters}call 2\nclose 0\n", CONNECT.replace("start 0", "start 1"));
    let output = fake.play(&actions, "30");
    let said = said(&output);
    assert!(!output.status.success(), "{said}");
    let seed = format!("seed {}, episode 3:", fake.seed);
    for word in [seed.as_str(), "survived its owner", "start 2 pipe run stubborn", "close 0: done", "the end"] {
        assert!(said.contains(word), "lacks `{word}`: {said}");
    }

    let replay = said.lines().find_map(|line| line.trim().strip_prefix("Wrote ")).expect("the replay is written");
    let shorter = fs::read_to_string(replay).expect("the replay was written");
    assert_eq!(shorter, fake.plan(&matters), "{said}");
    assert!(said.contains(&shorter), "{said}");

    let again = play(&fake.dir.join("leash"), Path::new(replay), "0");
    assert!(!again.status.success() && self::said(&again).contains("survived its owner"), "{again:?}");
    let real = play(leash(), Path::new(replay), "0");
    assert!(real.status.success(), "{}", self::said(&real));
    let table = String::from_utf8_lossy(&real.stdout).into_owned();
    let _ = fs::remove_file(replay);
    assert!(table.contains("| failures | 0 |") && table.contains(&format!("| seed | {} |", fake.seed)), "{table}");
}
