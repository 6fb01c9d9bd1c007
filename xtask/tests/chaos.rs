//! Checks that chaos finds the faults that it looks for: fake leashes that break one promise each, and the failure that
//! is printed, shrunk and replayed. The last test uses the real leash, and nothing is found.

#![expect(clippy::disallowed_methods, reason = "it starts the program that is tested")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::leash::{fixture, leash, zoo};
use testkit::user::Who;

/// A leash in its own directory, which is removed with it.
struct Fake {
    dir: PathBuf,
    /// Its own seed: it names the file that a failure is written to.
    seed: u64,
}

impl Fake {
    /// `run` and `connect` run these lines of a shell script. The resident of the world and all other commands use the
    /// real leash.
    fn new(run: &str, connect: &str) -> Self {
        Self::of(REAL, &[("run", run), ("connect", connect)])
    }

    /// The same for `serve`. The world starts one, and another one at the end.
    fn serving(serve: &str) -> Self {
        Self::of(REAL, &[("serve", serve)])
    }

    /// The same for the resident and any command.
    fn of(resident: &str, commands: &[(&str, &str)]) -> Self {
        let dir = std::env::temp_dir().join(testkit::unique("leash-fake"));
        fs::create_dir(&dir).expect("cannot make a directory");
        let arms: String = commands.iter().map(|(command, lines)| format!("{command})\n{lines}\n;;\n")).collect();
        let script = format!(
            "#!/bin/sh\nreal='{}'\ncase \"$*\" in *census-of-the-resident*) {resident} ;; esac\n\
             case \"$1\" in\n{arms}esac\n{REAL}\n",
            leash().display(),
        );
        let file = dir.join("leash");
        fs::write(&file, script).expect("cannot write the script");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("cannot make it a program");
        Self { dir, seed: testkit::random() }
    }

    /// Writes a file next to it.
    fn file(&self, name: &str, text: &str) -> PathBuf {
        let file = self.dir.join(name);
        fs::write(&file, text).expect("cannot write a file");
        file
    }

    /// A plan with these actions, for the user that runs the tests and the containment `reaper`, which works
    /// everywhere.
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

const SERVE: &str = "start 0 pipe serve-http polite honest grace=50 nothing=0 wait\n";

/// The real leash in place of the script.
const REAL: &str = r#"exec "$real" "$@""#;

/// Starts the server, and never ends it.
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
fn file_left_in_the_ledger_is_found() {
    let fake = Fake::new(r#": > "$LEASH_RUNTIME_DIR/leftover"; exec "$real" "$@""#, "");
    check(&fake, RUN, "left in the runtime directory: leftover");
}

/// Only a process of this scene can have both variables.
#[test]
fn a_bystander_that_is_hit_is_found() {
    let by_mark = r#"for file in $(grep -lzx LEASH_ID=somebody-elses /proc/[0-9]*/environ 2> /dev/null); do
            grep -qzxF "LEASH_RUNTIME_DIR=$LEASH_RUNTIME_DIR" "$file" && kill -9 "$(basename "${file%/environ}")"
        done
        exec "$real" "$@""#;
    check(&Fake::new(by_mark, ""), RUN, "the bystander with a mark was hit");
}

/// A bridge that does not end the sessions that it opens.
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

/// Stops the keeper, and kills it when its leash exits: all its work is left to the next start of leash.
const NO_KEEPER: &str = r#"me=$$
    (
        while kill -0 $me; do
            for one in $(cat /proc/$me/task/$me/children); do
                [ "$(cat /proc/$one/comm)" = keeper ] && kill -STOP "$one" && keeper=$one
            done
            sleep 0.01
        done
        kill -9 "$keeper"
    ) < /dev/null > /dev/null 2>&1 &
    exec "$real" "$@""#;

#[test]
fn a_keeper_that_leaves_its_work_to_the_next_start_is_found() {
    let actions = format!("{CONNECT}pause 400\nstrike KILL 0:leash\n");
    check(&Fake::new("", NO_KEEPER), &actions, "before the next start of leash: honest session");
}

#[test]
fn a_gateway_that_does_not_see_that_its_clients_are_gone_is_found() {
    check(&Fake::serving(LINGERS), SERVE, "clients are gone, and not so all of their sessions: Some(1)");
}

/// A gateway that keeps the sessions of clients that are gone.
const LINGERS: &str = r#"mine="$(dirname "$0")/slow.json"
    sed 's/"linger":"100ms"/"linger":"10m"/' "$6" > "$mine"
    exec "$real" serve -v --listen "$4" --config "$mine""#;

#[test]
fn sessions_of_short_lived_clients_that_stay_are_found() {
    let complaint = "clients are gone, and not so all of their sessions: Some(4)";
    check(&Fake::serving(LINGERS), "visit serve-http polite honest 4\n", complaint);
}

#[test]
fn a_killed_gateway_that_leaves_its_sessions_to_the_next_start_is_found() {
    let actions = format!("{SERVE}pause 400\nstrike KILL 0:leash\n");
    check(&Fake::serving(NO_KEEPER), &actions, "before the next start of leash: honest session");
}

/// Starts the server, and writes at once a receipt that it is gone.
fn liar() -> String {
    let receipt = r#"{"session":"%s","run":"%s","holdings":[{"kind":"tree","fate":"gone"}]}\n"#;
    format!(
        r#"export LEASH_ID="liar-$$"
        mkdir -p "$XDG_STATE_HOME/leash"
        printf '{receipt}' "$LEASH_ID" "$LEASH_ID" >> "$XDG_STATE_HOME/leash/receipts.jsonl"
        {NO_LEASH}"#
    )
}

#[test]
fn a_receipt_that_says_gone_of_a_living_tree_is_found() {
    check(&Fake::new(&liar(), ""), &RUN.replace("polite", "stubborn"), "hides a survivor");
}

#[test]
fn a_receipt_that_hides_a_process_in_a_foreign_namespace_is_found() {
    let who = if Who::me() == Who::Root { "--pid" } else { "--user" };
    let made = Command::new(zoo()).args(["ns", "--pid", who, "--"]).arg(zoo()).args(["exit", "0"]).output();
    if !made.is_ok_and(|output| output.status.success()) {
        return testkit::note("skipped: no PID namespace here");
    }
    check(&Fake::new(&liar(), ""), &RUN.replace("polite", "foreign"), "hides a survivor");
}

/// The witnesses see a process by any of its threads.
#[test]
fn a_process_without_a_main_thread_that_outlives_its_owner_is_found() {
    check(&Fake::new(NO_LEASH, ""), &RUN.replace("polite", "headless-member"), "survived its owner");
}

#[test]
fn leash_that_removes_foreign_files_is_found() {
    let removes = r#"rm -rf "$LEASH_RUNTIME_DIR"/sessions/forged-*; exec "$real" "$@""#;
    check(&Fake::serving(removes), &format!("{RUN}forge 0 directory\n"), "what leash did not make was removed");
}

#[test]
fn a_starved_start_that_forgets_a_record_is_found() {
    let forgets = r#"[ "$(ulimit -n)" -lt 20 ] && rm -f "$LEASH_RUNTIME_DIR"/sessions/*; exec "$real" "$@""#;
    let actions = format!("{}starve 0 descriptors=12\n", RUN.replace("polite", "setsid"));
    check(&Fake::new(forgets, ""), &actions, "is gone, and there is no receipt");
}

#[test]
fn a_leash_that_stays_because_its_keeper_was_traced_is_found() {
    let stays = r#"me=$$
        (
            while kill -0 $me; do
                for one in $(cat /proc/$me/task/$me/children); do
                    grep -q '^TracerPid:.[1-9]' "/proc/$one/status" && exec sleep 60
                done
                sleep 0.01
            done
        ) < /dev/null > /dev/null 2>&1 &
        exec "$real" "$@""#;
    check(&Fake::new(stays, ""), &format!("{RUN}trace 0\npause 400\n"), ": sleep 60");
}

#[test]
fn an_end_by_force_that_ends_nothing_is_found() {
    let complaint = "`leash end --force` ended with exit status: 0, and there is";
    check(&Fake::of(REAL, &[("end", "exit 0")]), &format!("{RUN}force 0\n"), complaint);
}

/// No signal that was sent to the gateway told it to end.
#[test]
fn a_gateway_that_dies_by_itself_is_found() {
    let dies = r#""$real" "$@" &
        gateway=$!
        trap 'kill -9 $gateway; exit 1' HUP
        trap 'kill $gateway' TERM
        wait $gateway
        wait $gateway
        exit 0"#;
    check(&Fake::serving(dies), &format!("{SERVE}grace 300\npause 400\n"), "`leash serve` died by itself with Some(1)");
}

#[test]
fn a_gateway_that_does_not_stop_is_found_whatever_was_sent_before() {
    let stays = r#"trap '' TERM
        "$real" "$@" &
        while :; do sleep 1; done"#;
    check(&Fake::serving(stays), &format!("{SERVE}strike CONT 0:leash\n"), "`leash serve` does not stop");
}

#[test]
fn a_gateway_that_does_not_come_back_is_found() {
    let once = r#"mark="$(dirname "$0")/once"
        [ -e "$mark" ] && exit 3
        : > "$mark"
        exec "$real" "$@""#;
    check(&Fake::serving(once), &format!("{SERVE}restart-serve TERM\n"), "`leash serve` does not come back");
}

/// An episode that cannot begin is a failure, unless the machine is the reason.
#[test]
fn a_leash_that_does_not_start_is_found() {
    check(&Fake::serving("exit 3"), SERVE, "leash serve left");
    check(&Fake::of("exit 3", &[]), RUN, "not even the resident came up");
    check(&Fake::new("exit 3", ""), RUN, "nothing is in its way, and it does not come up: start 0");
}

#[test]
fn failure_is_printed_shrunk_and_replayed() {
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
