//! A stdio server, tested: it lives several times and is asked to leave in a different way each time.

mod judge;
mod plan;
pub(crate) mod talk;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use rustix::process::Signal;

use self::judge::Life;
use self::plan::{Ask, PLAN, Probe, Stage};
use self::talk::Handshake;
use super::subject::{Start, Subject, exit_of};
use super::{CheckError, Report};
use crate::clock::Moment;
use crate::tree::Places;

pub use talk::Call;

/// What to test, and how patiently.
#[derive(Clone, Debug)]
pub struct StdioCheck {
    /// The server's command line.
    pub command: Vec<OsString>,
    /// How long a server may take to leave once it was asked to, and what it started may take after it.
    pub grace: Duration,
    /// How long it may take to answer the handshake.
    pub ready: Duration,
    /// The call that is to be in flight; else it is `tools/list`.
    pub call: Option<Call>,
    /// Whether the server's stderr is ours.
    pub aloud: bool,
    /// Whether warnings are findings.
    pub strict: bool,
}

impl StdioCheck {
    /// Tests it. `progress` hears what is done next.
    pub fn run(&self, places: &Places, progress: &mut dyn FnMut(&str)) -> Result<Report, CheckError> {
        let mut lives: Vec<Life> = Vec::new();
        for probe in PLAN {
            progress(probe.title);
            // A server that was asked to leave before it was up has to come up first.
            let start = lives.first().map(|life| match &life.handshake {
                Some(Handshake::Done { took, .. }) => *took,
                _ => self.ready,
            });
            lives.push(self.live(places, probe, start.unwrap_or_default())?);
            if !matches!(lives[0].handshake, Some(Handshake::Done { .. })) {
                let rows = judge::rows(&lives, None, self.grace);
                return Ok(Report::new("stdio", shown(&self.command), rows, self.strict));
            }
        }
        progress("starts again after all that");
        let again = self.start_again(places)?;
        let rows = judge::rows(&lives, Some(&again), self.grace);
        Ok(Report::new("stdio", shown(&self.command), rows, self.strict))
    }

    fn start(&self, places: &Places) -> Result<Subject, CheckError> {
        Subject::start(&Start {
            command: &self.command,
            env: &[],
            places,
            patience: self.ready * 2 + self.grace * 2,
            aloud: self.aloud,
        })
    }

    fn live(&self, places: &Places, probe: Probe, start: Duration) -> Result<Life, CheckError> {
        let began = Moment::now();
        let mut subject = self.start(places)?;
        let handshake = self.reach(&mut subject, probe.stage, began);
        let ports = subject.members().into_iter().flat_map(|member| member.ports).collect();
        let early = matches!(probe.stage, Stage::Started | Stage::Greeting);
        let patience = if early { self.grace + start } else { self.grace };
        let asked = Moment::now();
        match probe.ask {
            Ask::Eof => subject.close_stdin(),
            Ask::Term => subject.signal(Signal::TERM),
            Ask::HostGone => subject.let_go(),
        }
        let gone = subject.wait_leader(asked + patience);
        let left_after = gone.then(|| Moment::now().since(asked));
        let left = if gone { subject.wait_gone(Moment::now() + self.grace) } else { Vec::new() };
        let mut life = Life {
            probe,
            handshake,
            left_after,
            exit: None,
            patience,
            ports_left: left.iter().flat_map(|survivor| survivor.ports.clone()).collect(),
            ports,
            left,
            last_words: subject.last_words(),
            took: Moment::now().since(began),
        };
        if gone {
            // A port may also be held by somebody whom the server told to: docker, a service.
            life.ports_left.extend(life.ports.iter().filter(|port| is_taken(**port)));
        }
        let receipt = subject.end();
        life.exit = left_after.and(receipt.ok().as_ref().and_then(exit_of));
        Ok(life)
    }

    /// Brings it to the stage at which it is asked to leave.
    fn reach(&self, subject: &mut Subject, stage: Stage, began: Moment) -> Option<Handshake> {
        let deadline = began + self.ready;
        match stage {
            Stage::Started => None,
            Stage::Greeting => {
                talk::greet(subject);
                None
            }
            Stage::Ready => Some(talk::shake_hands(subject, began, deadline)),
            Stage::InFlight => {
                let handshake = talk::shake_hands(subject, began, deadline);
                if let Handshake::Done { version, .. } = &handshake {
                    talk::call(subject, self.call.as_ref(), version);
                }
                Some(handshake)
            }
        }
    }

    fn start_again(&self, places: &Places) -> Result<Handshake, CheckError> {
        let began = Moment::now();
        let mut subject = self.start(places)?;
        let handshake = talk::shake_hands(&mut subject, began, began + self.ready);
        // What becomes of it was seen often enough.
        let _ = subject.end();
        Ok(handshake)
    }
}

/// Whether somebody listens there. That we may not is another matter.
fn is_taken(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
}

/// A command line for people.
pub(super) fn shown(command: &[OsString]) -> String {
    command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
