//! Tests a stdio server: starts it several times and asks it to exit in a different way each time.

mod judge;
mod plan;
pub(crate) mod talk;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::{ffi::OsString, io::ErrorKind, time::Duration};

use rustix::process::Signal;

use self::plan::{ExitRequest, ExitStage, PLAN, Probe};
use self::{judge::StdioRun, talk::Handshake};
use super::subject::{Subject, SubjectStart, exit_of};
use super::{CheckError, CheckReport, Progress, StopSignals};
use leash_model::clock::Moment;
use leash_tree::places::Places;

pub use talk::ToolCall;

/// Extra time for a server that starts more slowly than the first time.
const SLOWER: Duration = Duration::from_millis(200);

/// The time for which a named call may run before the server is asked to exit. A call that was answered by then was
/// not in flight.
const AT_WORK: Duration = Duration::from_millis(200);

/// The stdio server to test, and the limits.
#[derive(Clone, Debug)]
pub struct StdioCheck {
    /// The server's command line.
    pub command: Vec<OsString>,
    /// The time for a server to exit once it was asked to, and for its helpers to exit after it.
    pub grace: Duration,
    /// The timeout of the handshake.
    pub ready: Duration,
    /// The call that shall be in flight; `tools/list` if `None`.
    pub call: Option<ToolCall>,
    /// True if the server's stderr is ours.
    pub shares_stderr: bool,
    /// True if warnings are findings.
    pub strict: bool,
}

/// The places where a server runs, and the stop request.
type On<'a> = (&'a Places, &'a StopSignals);

impl StdioCheck {
    /// Runs the test. `progress` receives the description of each step.
    pub fn run(&self, places: &Places, stop: &StopSignals, progress: Progress<'_>) -> Result<CheckReport, CheckError> {
        let mut runs: Vec<StdioRun> = Vec::new();
        for probe in PLAN {
            progress(probe.title);
            // A server that was asked to exit right after its start has to start up first.
            let start = runs.first().map(|run| match &run.handshake {
                Some(Handshake::Done { took, .. }) => *took,
                _ => self.ready,
            });
            runs.push(self.run_once((places, stop), probe, start.unwrap_or_default())?);
            if !matches!(runs[0].handshake, Some(Handshake::Done { .. })) {
                let rows = judge::rows(&runs, None, self.grace);
                return Ok(CheckReport::new("stdio", shown(&self.command), rows, self.strict));
            }
        }
        progress("starts again after all that");
        let again = self.start_again((places, stop))?;
        let rows = judge::rows(&runs, Some(&again), self.grace);
        Ok(CheckReport::new("stdio", shown(&self.command), rows, self.strict))
    }

    fn start<'a>(&'a self, (places, stop): On<'a>) -> Result<Subject<'a>, CheckError> {
        Subject::start(&SubjectStart {
            command: &self.command,
            env: &[],
            places,
            time_limit: self.ready * 3 + self.grace * 3,
            shares_stderr: self.shares_stderr,
            terminal: false,
            stop,
        })
    }

    fn run_once(&self, on: On<'_>, probe: Probe, start: Duration) -> Result<StdioRun, CheckError> {
        let began = Moment::now();
        let mut subject = self.start(on)?;
        let (handshake, answered) = self.reach(&mut subject, probe.stage, (began, start));
        let ports = subject.members().into_iter().flat_map(|member| member.ports).collect();
        // A server that was asked right after its start has to start up first.
        let early = probe.stage == ExitStage::Started;
        let time_limit = if early { self.grace + start } else { self.grace };
        let (lived, asked) = (subject.lives(), Moment::now());
        match probe.ask {
            ExitRequest::Eof => subject.close_stdin(),
            ExitRequest::Term => subject.signal(Signal::TERM),
            ExitRequest::HostGone => subject.close_pipes(),
        }
        let gone = subject.wait_leader(asked + time_limit);
        let left_after = gone.then(|| Moment::now().since(asked));
        let left = if gone { subject.wait_gone(Moment::now() + self.grace) } else { Vec::new() };
        let mut run = StdioRun {
            probe,
            handshake,
            answered,
            lived,
            left_after,
            exit: None,
            time_limit,
            ports_left: left.iter().flat_map(|survivor| survivor.ports.clone()).collect(),
            ports,
            left,
            stderr_tail: subject.stderr_tail(),
            took: Moment::now().since(began),
        };
        if gone {
            // A process outside of the tree may also hold a port for the server: docker, a service.
            run.ports_left.extend(run.ports.iter().filter(|port| is_taken(**port)));
        }
        let receipt = subject.end();
        on.1.check()?;
        run.exit = left_after.and(receipt.ok().as_ref().and_then(exit_of));
        Ok(run)
    }

    /// Brings the server to the stage at which it is asked to exit. The bool is true if the call was answered too
    /// early.
    fn reach(
        &self,
        subject: &mut Subject<'_>,
        stage: ExitStage,
        (began, start): (Moment, Duration),
    ) -> (Option<Handshake>, bool) {
        let deadline = began + self.ready;
        match stage {
            ExitStage::Started => (None, false),
            ExitStage::Up => {
                subject.wait_leader(began + start + SLOWER);
                (None, false)
            }
            ExitStage::Greeting => {
                subject.wait_leader(began + start + SLOWER);
                talk::send_initialize(subject);
                (None, false)
            }
            ExitStage::Ready => (Some(talk::handshake(subject, began, deadline)), false),
            ExitStage::InFlight => {
                let handshake = talk::handshake(subject, began, deadline);
                let Handshake::Done { version, .. } = &handshake else { return (Some(handshake), false) };
                let time_limit = if self.call.is_some() { AT_WORK } else { Duration::ZERO };
                let answered = talk::call(subject, self.call.as_ref(), version, time_limit);
                (Some(handshake), answered)
            }
        }
    }

    fn start_again(&self, on: On<'_>) -> Result<Handshake, CheckError> {
        let began = Moment::now();
        let mut subject = self.start(on)?;
        let handshake = talk::handshake(&mut subject, began, began + self.ready);
        // Its end was tested before, so the result is not needed.
        let _ = subject.end();
        on.1.check()?;
        Ok(handshake)
    }
}

/// True if a process listens there. A missing permission to bind does not count.
fn is_taken(port: u16) -> bool {
    let hosts = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
    let taken = |host| TcpListener::bind((host, port)).is_err_and(|error| error.kind() == ErrorKind::AddrInUse);
    hosts.into_iter().any(taken)
}

/// A command line as text for the user.
pub(super) fn shown(command: &[OsString]) -> String {
    command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
