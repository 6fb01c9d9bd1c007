//! A worker: one job after the other, a session per job, nothing left after any of them. Needs no feature and no runtime.
//!
//! ```console
//! $ cargo run --example worker -- npx -y @modelcontextprotocol/server-everything
//! ```

#![expect(clippy::print_stdout, reason = "it is an example, and this is what it shows")]

use std::error::Error;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::time::Duration;

use leash_core::{Places, Session, Spec};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"worker","version":"1"}}}"#;

fn main() -> Result<(), Box<dyn Error>> {
    // First of all: leash executes this very program again, as a supervisor and as a keeper.
    if leash_core::enter() {
        return Ok(());
    }
    let mut command: Vec<OsString> = std::env::args_os().skip(1).collect();
    if command.is_empty() {
        // No MCP server, but it answers, and it has a helper that nobody knows of.
        command = ["sh", "-c", "setsid sleep 1000 & exec cat"].map(OsString::from).to_vec();
    }
    let dir = std::env::temp_dir().join(format!("leash-worker-{}", std::process::id()));
    for job in 1..=5 {
        work(&dir, job, &command)?;
    }
    std::fs::remove_dir_all(dir)?;
    Ok(())
}

fn work(dir: &std::path::Path, job: u32, command: &[OsString]) -> Result<(), Box<dyn Error>> {
    let session = Session::named(format!("job-{job}"), Places::below(dir)).label("job", job.to_string());
    // Whatever happens here, and wherever this returns: dropping the session ends it.
    let mut session = session.grace(Duration::from_millis(500)).max_age(Duration::from_secs(600));
    let server = session.start(Spec::new(command.iter().cloned()))?;
    let (mut stdin, stdout) = server.take_streams().ok_or("the streams are taken once")?;
    writeln!(stdin, "{INITIALIZE}")?;
    let mut answer = String::new();
    BufReader::new(stdout).read_line(&mut answer)?;

    drop(stdin);
    let receipt = session.end().wait();
    let members: usize = receipt.trees().map(|tree| tree.members).sum();
    println!("job {job}: {} bytes, {members} processes, all gone: {}", answer.len(), receipt.all_gone());
    Ok(())
}
