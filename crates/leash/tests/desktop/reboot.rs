//! Records of an earlier boot are not believed. The first test leaves a run behind and asks for a reboot; the second
//! one runs after it, with other processes under the recorded numbers.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Pid;
use serde_json::Value;
use testkit::leash::{Answer, leash};
use testkit::or_skip;
use testkit::process::{Handle, Process};

use crate::person::{Person, Running, Tree, in_the_box, until};

/// The next process gets a number above this one, if it is free.
const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";

/// Far above the numbers that a machine has used a moment after its boot.
const HIGH: i32 = 20_000;

/// The file that asks the box for a reboot after the tests. It has the name of the person.
fn request() -> PathBuf {
    Path::new(&std::env::var_os("LEASH_BOX").expect("it is the box")).join("reboot")
}

/// The person's ledger on the disk: that in /run is gone after a reboot.
fn ledger(person: &Person) -> PathBuf {
    person.home().join("ledger")
}

/// The output of `leash` with that ledger.
fn leash_with_ledger(person: &Person, words: &[&str]) -> Answer {
    let mut command = person.command(leash());
    command.env("LEASH_RUNTIME_DIR", ledger(person)).args(words);
    command.output().expect("setpriv starts").into()
}

/// The records in the ledger, by path.
fn records(person: &Person) -> Vec<(PathBuf, Value)> {
    let entries =
        fs::read_dir(ledger(person).join("sessions")).expect("the ledger").flatten().map(|entry| entry.path());
    let record = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a record");
        (path, serde_json::from_str(&text).expect("JSON"))
    };
    entries.filter(|path| path.extension().is_some_and(|end| end == "json")).map(record).collect()
}

/// The server runs when the machine stops without an end of any process.
#[test]
fn before() {
    or_skip!(in_the_box());
    or_skip!(if request().exists() { Err("it runs before the reboot") } else { Ok(()) });
    let person = Person::new();
    let mut tree = Tree::new("chain");
    fs::write(LAST_PID, HIGH.to_string()).expect("we are root");
    let script =
        tree.on_a_leash("").replacen("exec ", &format!("LEASH_RUNTIME_DIR={} exec ", ledger(&person).display()), 1);
    // The host must outlive this process, so another one holds the end of its stdin: other tests may run until the reboot.
    let mut holder = Command::new("sleep").arg("infinity").stdout(Stdio::piped()).spawn().expect("sleep starts");
    let stdin = holder.stdout.take().expect("it is piped");
    let mut host = person.ssh(&script);
    host.stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null());
    let host = Running(host.spawn().expect("ssh starts"));
    tree.wait_ready();
    until("a complete record", || {
        let list = leash_with_ledger(&person, &["ps", "--json"]).json();
        (list["sessions"][0]["leader"].is_object()).then_some(())
    });
    fs::write(request(), &person.name).expect("the directory of the box");
    // The reboot ends them.
    std::mem::forget((person, tree, host, holder));
}

#[test]
fn after() {
    or_skip!(in_the_box());
    let name = or_skip!(fs::read_to_string(request()).map_err(|_| "it runs after the reboot"));
    let person = Person { name };
    let list = records(&person);
    let [(path, record)] = &list[..] else { panic!("not one record: {list:#?}") };
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("the kernel knows it");
    assert_ne!(record["boot"], boot.trim(), "the machine was not rebooted");
    let mut pids = BTreeSet::new();
    collect_pids(record, &mut pids);
    assert!(pids.len() >= 3, "supervisor, keeper and server: {record:#}");
    // The largest number first: the machine still boots, and its new processes get the numbers after the last stranger's.
    let strangers: Vec<Stranger> = pids.iter().rev().map(|pid| Stranger::start(&person, *pid)).collect();
    let forged = forge(path, record, &strangers[0]);

    let listed = leash_with_ledger(&person, &["ps", "--leashed", "--json"]).json();
    assert_eq!(listed["sessions"], serde_json::json!([]), "{listed:#}");
    let ended = leash_with_ledger(&person, &["end", "--all"]);
    let started = leash_with_ledger(&person, &["run", "-v", "--", "true"]);
    assert_eq!(started.code, 0, "{started:?}");
    for stranger in &strangers {
        assert!(stranger.handle.is_alive(), "{} was killed: {ended:?} {started:?}", stranger.child.id());
    }
    assert_eq!(records(&person), []);
    let history = leash_with_ledger(&person, &["history", "--json"]).json();
    let receipts = history["receipts"].as_array().expect("a list");
    let receipt = |run: &Value| {
        let found = receipts.iter().find(|receipt| receipt["run"] == *run);
        found.unwrap_or_else(|| panic!("no receipt of {run}: {history:#}\n{ended:?}\n{started:?}"))
    };
    // The reboot proves the end of the first run. The second record was written in this boot, which proves nothing.
    for (run, fate) in [(&record["run"], "gone"), (&forged, "left")] {
        let receipt = receipt(run);
        assert_eq!(
            (&receipt["reason"]["kind"], &receipt["holdings"][0]["fate"]),
            (&"swept".into(), &fate.into()),
            "{receipt:#}"
        );
        assert_eq!(receipt["holdings"][0]["members"], 0, "{receipt:#}");
    }
}

/// All numbers of processes in a record.
fn collect_pids(value: &Value, pids: &mut BTreeSet<i32>) {
    match value {
        Value::Object(fields) => {
            pids.extend(fields.get("pid").and_then(Value::as_i64).map(|pid| pid as i32));
            fields.iter().filter(|(name, _)| *name != "owners").for_each(|(_, field)| collect_pids(field, pids));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_pids(item, pids)),
        _ => {}
    }
}

/// Writes a second record, whose server is exactly the stranger, but in the earlier boot. Returns the id of its run.
fn forge(path: &Path, record: &Value, stranger: &Stranger) -> Value {
    let mut record = record.clone();
    let start = Process::read(stranger.handle.pid()).expect("it lives").start;
    let identity = serde_json::json!({"pid": stranger.child.id(), "start": start});
    record["leader"] = identity.clone();
    record["members"] = serde_json::json!([identity]);
    let run = record["run"].as_str().expect("an id");
    let other: String = run.chars().rev().collect();
    assert_ne!(run, other);
    record["run"] = other.clone().into();
    let forged = path.with_file_name(format!("{other}.json"));
    fs::write(&forged, record.to_string()).expect("we are root");
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(path).expect("it was read"));
    std::os::unix::fs::chown(&forged, Some(owner), Some(owner)).expect("we are root");
    other.into()
}

/// A process of the person with a chosen number.
struct Stranger {
    child: Child,
    handle: Handle,
}

impl Stranger {
    fn start(person: &Person, pid: i32) -> Stranger {
        // Made before, because it starts a program, which would get the number.
        let mut command = person.command("sleep");
        command.arg("infinity");
        let holder = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let what = format!("a process with the recorded number {pid}, which at first belonged to `{}`", holder.trim());
        let child = until(&what, || {
            fs::write(LAST_PID, (pid - 1).to_string()).expect("we are root");
            let mut child = command.spawn().expect("setpriv starts");
            if child.id() == pid as u32 {
                return Some(child);
            }
            // Another process was faster.
            let _ = child.kill().and_then(|()| child.wait());
            None
        });
        let pid = Pid::from_raw(pid).expect("a number of a process");
        let handle = Handle::open(pid, |_| true).expect("it is our child");
        Stranger { child, handle }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
