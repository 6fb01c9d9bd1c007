//! An HTTP server, tested: what becomes of sessions that are ended, unknown, abandoned or opened by a stranger.

mod judge;
mod wire;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;
use tokio::task::LocalSet;

use self::judge::{Facts, Memory};
use self::wire::{Answer, Wire};
use super::subject::{Heard, Start, Subject};
use super::{CheckError, Report, Stop};
use leash_model::clock::Moment;
use leash_model::identity::Identity;
use leash_model::{duration, id};
use leash_tree::places::Places;
use leash_tree::platform::identity;
use leash_tree::platform::proc::Proc;

/// Sessions in a round of the measurement of memory, and rounds after the first, which only warms up: so many at least, and so many
/// before it is called a leak. A server that collects its garbage may well grow by some tens of megabytes until it does so first.
const SESSIONS: u64 = 60;
const ROUNDS: usize = 4;
const MOST_ROUNDS: usize = 32;

/// What is waited beyond the time after which an abandoned session has to be gone: servers look only now and then.
const SLACK: Duration = Duration::from_millis(1500);

/// What to test.
#[derive(Clone, Debug)]
pub struct HttpCheck {
    /// The server's address.
    pub url: String,
    /// Sent as `Authorization: Bearer`.
    pub bearer: Option<String>,
    /// How long it may take to answer `initialize`.
    pub ready: Duration,
    /// A program that prints what [`visit`] tells when it is started as
    /// `PROGRAM check --part visitor --journal FILE --url URL --ready DURATION`, with the bearer token in [`VISITOR_TOKEN`], and
    /// listens to no signal meanwhile: leash. A session is abandoned only when its client is gone.
    pub program: PathBuf,
    /// After which time without a request a session has to be gone.
    pub expect_idle: Option<Duration>,
    /// The server's process, whose memory is measured.
    pub pid: Option<i32>,
    /// Whether warnings are findings.
    pub strict: bool,
}

impl HttpCheck {
    /// Tests it. `progress` hears what is done next.
    pub fn run(&self, places: &Places, stop: &Stop, progress: &mut dyn FnMut(&str)) -> Result<Report, CheckError> {
        let wrong = |why: &str| CheckError::Url { url: self.url.clone(), why: why.to_owned() };
        let url: Uri = self.url.parse().map_err(|_| wrong("it can't be read"))?;
        if url.authority().is_none() || !matches!(url.scheme_str(), Some("http" | "https")) {
            return Err(wrong("write http://HOST:PORT/PATH or https://..."));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let wire = Wire::new(url.clone(), self.bearer.as_deref(), self.ready, stop);
        let facts = LocalSet::new().block_on(&runtime, self.look(&wire, places, progress))?;
        let shown = leash_upstream::delete::shown(&url);
        Ok(Report::new("http", shown, judge::rows(&facts), self.strict))
    }

    /// Looks, and leaves no session open, however that ended.
    async fn look(
        &self,
        wire: &Wire<'_>,
        places: &Places,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Facts, CheckError> {
        // Who asks twice does not want to wait for the rest.
        let facts = tokio::select! {
            facts = self.find(wire, places, progress) => facts,
            () = wire.stop.wait(2) => Ok(Facts::default()),
        };
        wire.close().await;
        wire.stop.check().and(facts)
    }

    async fn find(
        &self,
        wire: &Wire<'_>,
        places: &Places,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Facts, CheckError> {
        let mut facts = Facts::default();
        progress("opens a session");
        let opened = wire.open().await;
        let session = opened.session().map(str::to_owned);
        if !opened.is_result() {
            facts.modern = Some(wire.discover().await);
        }
        facts.opened = Some(opened);
        if let Some(session) = &session {
            progress("ends it");
            facts.deleted = Some(wire.delete(session).await);
            facts.afterwards = Some(wire.ask(session).await);
            // As long as the ids of the SDKs, and in their alphabet.
            facts.unknown = Some(wire.ask(&format!("00000000-0000-4000-8000-{}", &id::random()[..12])).await);
            facts.abandoned = self.abandon(wire, places, progress).await?;
        }
        progress("comes as a web page of somebody else");
        let modern = facts.modern.as_ref().is_some_and(Answer::is_result);
        facts.foreign = Some(wire.come_from_elsewhere(modern).await);
        wire.close().await;
        if let (Some(pid), true) = (self.pid, session.is_some()) {
            progress("opens and ends many sessions");
            facts.memory = measure(wire, pid).await?;
        }
        Ok(facts)
    }

    /// A session that nobody uses. It is asked for once only: each request would begin its idle time anew.
    async fn abandon(
        &self,
        wire: &Wire<'_>,
        places: &Places,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Option<(Duration, Answer)>, CheckError> {
        let Some(idle) = self.expect_idle else { return Ok(None) };
        let wait = idle + SLACK;
        let Some(session) = self.visited(wire, places)? else {
            return Ok(Some((wait, Answer::Failed("no session could be opened".to_owned()))));
        };
        progress(&format!("waits {} for an abandoned session to end", duration::rough(wait)));
        let until = tokio::time::Instant::now() + wait;
        tokio::select! {
            () = tokio::time::sleep_until(until) => {}
            () = wire.stop.wait(1) => return Ok(None),
        }
        Ok(Some((wait, wire.ask(&session).await)))
    }

    /// The session of a visitor that is gone. A server that watches its clients would keep one of ours for as long as we live.
    fn visited(&self, wire: &Wire<'_>, places: &Places) -> Result<Option<String>, CheckError> {
        let ready = duration::exact(self.ready);
        let words = ["check", "--part", "visitor", "--journal", "/dev/null", "--url", &self.url, "--ready", &ready];
        let words = words.map(OsString::from);
        let command: Vec<OsString> = std::iter::once(self.program.clone().into()).chain(words).collect();
        let env = [(VISITOR_TOKEN.into(), self.bearer.as_ref().map(OsString::from))];
        // The time to start, to open a session, and to say so.
        let patience = self.ready + wire::PATIENCE;
        // It is heard out whatever happens: a session whose id nobody knows could not be ended.
        let never = Stop::never();
        let mut visitor = Subject::start(&Start {
            command: &command,
            env: &env,
            places,
            patience: patience + wire::PATIENCE,
            aloud: false,
            terminal: false,
            stop: &never,
        })?;
        let session = match visitor.hear(Moment::now() + patience) {
            Heard::Line(line) => Some(String::from_utf8_lossy(&line).into_owned()),
            Heard::End | Heard::Nothing => None,
        };
        if let Some(session) = &session {
            wire.has_open(session);
            // It says to the server that the session is open, and leaves. For a check that is stopped nobody has to.
            if wire.stop.asked().is_none() {
                visitor.wait_leader(Moment::now() + wire::PATIENCE);
            }
        }
        // It has told us all that it was for.
        let _ = visitor.end();
        Ok(session)
    }
}

/// The variable in which a visitor finds the bearer token.
pub const VISITOR_TOKEN: &str = "LEASH_CHECK_TOKEN";

/// Opens a session within `ready` and leaves it open. `tell` hears its id as soon as it is known: whoever waits for it has to end
/// the session, whatever happens to us. For a process that has nothing else to do. Whether there is a session.
pub fn visit(url: &str, bearer: Option<&str>, ready: Duration, tell: impl FnOnce(&str)) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (Ok(url), Ok(runtime)) = (url.parse::<Uri>(), runtime) else { return false };
    let stop = Stop::never();
    let wire = Wire::new(url, bearer, ready, &stop);
    let visiting = async {
        wire.initialize(&[]).await;
        let Some(session) = wire.any_open() else { return false };
        tell(&session);
        wire.initialized(&session).await;
        true
    };
    LocalSet::new().block_on(&runtime, visiting)
}

/// The server's memory after each round of sessions that were opened and ended.
async fn measure(wire: &Wire<'_>, pid: i32) -> Result<Memory, CheckError> {
    let proc = Proc::own().map_err(CheckError::Proc)?;
    let Some(held) = leash_tree::platform::identity::Held::open(&proc, pid) else {
        return Ok(Memory::Unknown(format!("there is no process {pid}")));
    };
    let id: Identity = held.id;
    let mut bytes = Vec::new();
    let give_up = Moment::now() + Duration::from_secs(120);
    while bytes.len() <= ROUNDS || (judge::still_grows(SESSIONS, &bytes) && bytes.len() <= MOST_ROUNDS) {
        for _ in 0..SESSIONS {
            let opened = wire.open().await;
            let Some(session) = opened.session() else {
                return Ok(Memory::Unknown(format!("it stopped opening sessions: {}", opened.describe())));
            };
            wire.ask(session).await;
            let ended = wire.delete(session).await;
            wire.stop.check()?;
            // What holds the sessions that it was not let to end has every right to grow.
            if !matches!(ended.status(), Some(200..300)) {
                return Ok(Memory::Unknown(format!("its sessions can't be ended: {}", ended.describe())));
            }
            if Moment::now() >= give_up {
                return Ok(Memory::Unknown("it takes too long".to_owned()));
            }
        }
        if !identity::is_alive(id, &proc) {
            return Ok(Memory::Unknown(format!("the process {pid} is gone")));
        }
        bytes.push(proc.proportional_bytes(pid));
    }
    Ok(Memory::Rounds { sessions: SESSIONS, bytes })
}
