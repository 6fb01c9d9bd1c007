//! The instructions that leash executes for a start and for a call, counted by callgrind. Other load on the machine does
//! not change them, so they show a slow growth of the cost that no clock shows there.

use std::fs;
use std::path::{Path, PathBuf};

use crate::gateway::{Gateway, post};
use crate::http::initialize;
use crate::scene::Scene;
use crate::upstream::{Seen, Upstream, Wire};
use crate::user::Who;
use crate::valgrind::Valgrind;

/// A piece of work, and the most instructions that leash may need for it.
#[derive(Debug)]
pub struct Work {
    /// Its name.
    pub name: &'static str,
    /// The bound.
    pub most: u64,
    count: fn(&Valgrind) -> Result<u64, String>,
}

/// All of them. Each bound is a measured number and a tenth more. To renew them after a change that is worth its cost, or
/// for another compiler: `cargo xtask bench instructions` prints the numbers.
pub const WORKS: [Work; 3] = [
    Work { name: "start", most: 1_270_000, count: start },
    Work { name: "stdio-call", most: 50_000, count: stdio_call },
    Work { name: "http-call", most: 67_500, count: http_call },
];

/// The number of calls. The same run with twice as many makes the start and the end drop out.
const CALLS: usize = 100;

/// The number of instructions that a piece of work took.
#[derive(Debug)]
pub struct Count {
    /// The work.
    pub work: &'static Work,
    /// The number.
    pub found: u64,
}

impl Count {
    /// The error says by how much the bound is passed, and what to do about it.
    pub fn check(&self) -> Result<(), String> {
        let Work { name, most, .. } = self.work;
        if self.found <= *most {
            return Ok(());
        }
        let more = (self.found as f64 / *most as f64 - 1.0) * 100.0;
        Err(format!(
            "`{name}` takes {} instructions, {more:.1} % more than its bound of {most}.\nTo see where they are: \
             `callgrind_annotate {}`.\nIf they are worth it, raise the bound in crates/testkit/src/instructions.rs.",
            self.found,
            kept(name).display(),
        ))
    }
}

impl Work {
    /// Counts its instructions.
    pub fn measure(&'static self, valgrind: &Valgrind) -> Result<Count, String> {
        Ok(Count { work: self, found: (self.count)(valgrind)? })
    }
}

/// The file in which the last count of a piece of work is kept.
fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../target/callgrind/{name}.out"))
}

/// `leash run` of a server that exits at once, from its first instruction to its last.
fn start(valgrind: &Valgrind) -> Result<u64, String> {
    let scene = scene(valgrind)?;
    let status =
        scene.leash(["run", "--", "true"]).status().map_err(|error| format!("cannot start valgrind: {error}"))?;
    match status.success() {
        true => total(&scene, "start"),
        false => Err(format!("`leash run` ended with {status} under valgrind")),
    }
}

/// One call through `leash serve` to a stdio server, on a connection that is kept.
fn stdio_call(valgrind: &Valgrind) -> Result<u64, String> {
    per_call(valgrind, "stdio-call", |scene| Gateway::single(scene, &[], &scene.tree("polite", ["--mcp"])))
}

/// The same to an HTTP server.
fn http_call(valgrind: &Valgrind) -> Result<u64, String> {
    let upstream = Upstream::start(answer);
    per_call(valgrind, "http-call", |scene| Gateway::in_front_of(scene, &[], &upstream.url()))
}

fn answer(seen: &Seen, wire: &mut Wire) -> std::io::Result<()> {
    let headers = [("content-type", "application/json"), ("mcp-session-id", "counted")];
    match (seen.method.as_str(), seen.text().contains("initialize")) {
        ("POST", true) => wire.answer("200 OK", &headers, INITIALIZED),
        ("POST", false) => wire.answer("200 OK", &headers[..1], CALLED),
        ("DELETE", _) => wire.answer("200 OK", &[], b""),
        _ => wire.answer("405 Method Not Allowed", &[], b""),
    }
}

const INITIALIZED: &[u8] = br#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
const CALL: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"a short text"}}}"#;
const CALLED: &[u8] = br#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"a short text"}]}}"#;

/// The instructions of the gateway for one call: the difference between many calls and twice as many.
fn per_call(valgrind: &Valgrind, name: &str, gateway: impl Fn(&Scene) -> Gateway) -> Result<u64, String> {
    let with = |calls: usize| -> Result<u64, String> {
        let scene = scene(valgrind)?;
        let gateway = gateway(&scene);
        let mut connection = gateway.connect();
        let opened = post(&mut connection, "x", None, &initialize("2025-11-25"));
        let session = opened.header("mcp-session-id").map(str::to_owned).ok_or_else(|| opened.text())?;
        for _ in 0..calls {
            let reply = post(&mut connection, "x", Some(&session), CALL);
            if reply.status != 200 || reply.json()["result"]["content"][0]["text"] != "a short text" {
                return Err(format!("a call was answered with {}: {}", reply.status, reply.text()));
            }
        }
        drop(connection);
        gateway.stop();
        total(&scene, name)
    };
    let (once, twice) = (with(CALLS)?, with(2 * CALLS)?);
    Ok(twice.saturating_sub(once) / CALLS as u64)
}

/// A scene whose `leash` counts its instructions.
fn scene(valgrind: &Valgrind) -> Result<Scene, String> {
    let who = if rustix::process::geteuid().is_root() { Who::Root } else { Who::User };
    let mut scene = Scene::set(who)?;
    let program = valgrind.counting_leash(&scene)?;
    scene.set_leash(program);
    Ok(scene)
}

/// The instructions of all processes of a scene that were counted. Keeps the file with the most of them.
fn total(scene: &Scene, name: &str) -> Result<u64, String> {
    let failed = |error: std::io::Error| format!("the count cannot be read: {error}");
    let mut counts = Vec::new();
    for entry in fs::read_dir(scene.dir()).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|kind| kind == "callgrind") {
            let text = fs::read_to_string(&path).map_err(failed)?;
            counts.push((count(&text).ok_or_else(|| format!("`{}` has no total", path.display()))?, text));
        }
    }
    let (_, largest) = counts.iter().max().ok_or("callgrind counted nothing")?;
    let file = kept(name);
    fs::create_dir_all(file.parent().unwrap_or(&file)).and_then(|()| fs::write(&file, largest)).map_err(failed)?;
    Ok(counts.iter().map(|(count, _)| count).sum())
}

/// The total in an output file of callgrind.
fn count(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_above_its_bound_is_refused() {
        static WORK: Work = Work { name: "start", most: 1000, count: |_| Ok(0) };
        assert_eq!(Count { work: &WORK, found: 1000 }.check(), Ok(()));
        let why = Count { work: &WORK, found: 1250 }.check().unwrap_err();
        assert!(why.contains("1250 instructions, 25.0 % more than its bound of 1000"), "{why}");
        assert!(why.contains("callgrind_annotate"), "{why}");
    }

    #[test]
    fn total_is_read_from_the_output() {
        assert_eq!(count("version: 1\nevents: Ir\n\nsummary: 6\ntotals: 1821352\n"), Some(1_821_352));
        assert_eq!(count("version: 1\n"), None);
    }
}
