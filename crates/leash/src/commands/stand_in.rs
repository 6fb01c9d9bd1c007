//! `leash check --part`: a stdio server that leash stands in for when a host is tested.
#![expect(
    clippy::disallowed_methods,
    reason = "a stand-in has a helper as real servers have: nobody ends it but the host"
)]

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use leash_core::check::host::journal::{Happened, Journal, Part};
use leash_core::check::host::stand_in::serve_stdio;
use rustix::time::Timespec;

use crate::args::StandIn;
use crate::exit_code;

/// A stand-in whose check is gone, and that nobody ended, leaves by itself after this long.
const LONGEST: Duration = Duration::from_secs(600);

/// Plays one part until it is over.
pub(crate) fn play(part: StandIn, journal: &Path) -> u8 {
    let played = match part {
        StandIn::Polite => serve(Part::Polite, journal),
        StandIn::Deaf => start_helper(journal).and_then(|()| serve(Part::Deaf, journal)).map(|()| stay()),
        StandIn::Helper => Journal::at(journal).write(Part::Helper, Happened::Started).map(|()| stay()),
    };
    played.map_or(exit_code::LEASH_FAILED, |()| exit_code::OK)
}

fn serve(part: Part, journal: &Path) -> io::Result<()> {
    let journal = Journal::at(journal);
    journal.write(part, Happened::Started)?;
    serve_stdio(part, &journal, io::stdin().lock(), io::stdout().lock())
}

/// Starts a helper that has nothing to do with the pipes of the protocol.
fn start_helper(journal: &Path) -> io::Result<()> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["check", "--part", "helper", "--journal"]).arg(journal);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop)
}

/// Deaf to everything but a signal.
fn stay() {
    let longest = Timespec { tv_sec: LONGEST.as_secs() as i64, tv_nsec: 0 };
    let _ = rustix::event::poll(&mut [], Some(&longest));
}
