//! The programs around a gateway in the benches, and the bare bridge that it is compared with. Each is this program
//! again, built as leash is: `xtask play ROLE`. Not for people.

pub(crate) mod body;
mod bridge;
pub(crate) mod echo;
mod forward;
pub(crate) mod server;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;

use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::net::TcpListener;

use crate::step::{Failure, Outcome};

/// The usage text.
const USAGE: &str = "\
usage: xtask play echo-stdio
       xtask play echo-http ADDRESS
       xtask play floor-stdio ADDRESS CMD...
       xtask play floor-http ADDRESS UPSTREAM-ADDRESS";

pub(crate) fn play(words: &[String]) -> Outcome {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        // It exits at the end of its stdin.
        ["echo-stdio"] => echo::on_stdio().map_err(|error| Failure::new(error.to_string())),
        ["echo-http", at] => owned(at, echo::on_http),
        ["floor-stdio", at, ref command @ ..] if !command.is_empty() => {
            let command: Vec<OsString> = command.iter().map(OsString::from).collect();
            owned(at, |listener| async move { bridge::run(listener, &command).await })
        }
        ["floor-http", at, upstream] => {
            let upstream = address(upstream)?;
            owned(at, |listener| forward::run(listener, upstream))
        }
        _ => Err(Failure::new(USAGE)),
    }
}

/// Runs a listener until its parent exits: a listener has no stdin whose end could tell it to exit.
fn owned<F: Future<Output = io::Result<()>>>(at: &str, role: impl FnOnce(TcpListener) -> F) -> Outcome {
    let at = address(at)?;
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Failure::new(format!("cannot be tied to the bench: {error}")))?;
    let failed = |error: io::Error| Failure::new(format!("cannot serve at {at}: {error}"));
    server::alone(async { role(server::listen(at)?).await }).map_err(failed)
}

fn address(word: &str) -> Outcome<SocketAddr> {
    word.parse().map_err(|_| Failure::new(format!("`{word}` is not an address\n{USAGE}")))
}
