//! An HTTP server, tested: what becomes of sessions that are ended, unknown, abandoned or opened by a stranger.

mod judge;
mod wire;

use std::time::Duration;

use hyper::Uri;
use tokio::task::LocalSet;

use self::judge::{Facts, Memory};
use self::wire::{Answer, Wire};
use super::{CheckError, Report, Stop};
use crate::clock::Moment;
use crate::id;
use crate::tree::identity::Identity;
use crate::tree::proc::Proc;

/// Sessions in a round of the measurement of memory, and rounds after the first, which only warms up.
const SESSIONS: u64 = 60;
const ROUNDS: usize = 4;

/// What is waited beyond the time after which an abandoned session has to be gone: servers look only now and then.
const SLACK: Duration = Duration::from_millis(1500);

/// What to test.
#[derive(Clone, Debug)]
pub struct HttpCheck {
    /// The server's address.
    pub url: String,
    /// Sent as `Authorization: Bearer`.
    pub bearer: Option<String>,
    /// After which time without a request a session has to be gone.
    pub expect_idle: Option<Duration>,
    /// The server's process, whose memory is measured.
    pub pid: Option<i32>,
    /// Whether warnings are findings.
    pub strict: bool,
}

impl HttpCheck {
    /// Tests it. `progress` hears what is done next.
    pub fn run(&self, stop: &Stop, progress: &mut dyn FnMut(&str)) -> Result<Report, CheckError> {
        let wrong = |why: &str| CheckError::Url { url: self.url.clone(), why: why.to_owned() };
        let url: Uri = self.url.parse().map_err(|_| wrong("it can't be read"))?;
        if url.authority().is_none() || !matches!(url.scheme_str(), Some("http" | "https")) {
            return Err(wrong("write http://HOST:PORT/PATH or https://..."));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let wire = Wire::new(url.clone(), self.bearer.as_deref(), stop);
        let facts = LocalSet::new().block_on(&runtime, self.look(&wire, progress))?;
        let shown = crate::http::delete::shown(&url);
        Ok(Report::new("http", shown, judge::rows(&facts), self.strict))
    }

    /// Looks, and leaves no session open, however that ended.
    async fn look(&self, wire: &Wire<'_>, progress: &mut dyn FnMut(&str)) -> Result<Facts, CheckError> {
        // Who asks twice does not want to wait for the rest.
        let facts = tokio::select! {
            facts = self.find(wire, progress) => facts,
            () = wire.stop.wait(2) => Ok(Facts::default()),
        };
        wire.close().await;
        wire.stop.check().and(facts)
    }

    async fn find(&self, wire: &Wire<'_>, progress: &mut dyn FnMut(&str)) -> Result<Facts, CheckError> {
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
            facts.abandoned = self.abandon(wire, progress).await;
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
    async fn abandon(&self, wire: &Wire<'_>, progress: &mut dyn FnMut(&str)) -> Option<(Duration, Answer)> {
        let idle = self.expect_idle?;
        let opened = wire.open().await;
        let session = opened.session()?;
        let wait = idle + SLACK;
        progress(&format!("waits {} for an abandoned session to end", crate::duration::rough(wait)));
        let until = tokio::time::Instant::now() + wait;
        tokio::select! {
            () = tokio::time::sleep_until(until) => {}
            () = wire.stop.wait(1) => return None,
        }
        Some((wait, wire.ask(session).await))
    }
}

/// The server's memory after each round of sessions that were opened and ended.
async fn measure(wire: &Wire<'_>, pid: i32) -> Result<Memory, CheckError> {
    let proc = Proc::own().map_err(CheckError::Proc)?;
    let Some(held) = crate::tree::identity::Held::open(&proc, pid) else {
        return Ok(Memory::Unknown(format!("there is no process {pid}")));
    };
    let id: Identity = held.id;
    let mut bytes = Vec::new();
    let give_up = Moment::now() + Duration::from_secs(120);
    for _ in 0..=ROUNDS {
        for _ in 0..SESSIONS {
            let opened = wire.open().await;
            let Some(session) = opened.session() else {
                return Ok(Memory::Unknown(format!("it stopped opening sessions: {}", opened.describe())));
            };
            wire.ask(session).await;
            wire.delete(session).await;
            wire.stop.check()?;
            if Moment::now() >= give_up {
                return Ok(Memory::Unknown("it takes too long".to_owned()));
            }
        }
        if !id.alive(&proc) {
            return Ok(Memory::Unknown(format!("the process {pid} is gone")));
        }
        bytes.push(proc.proportional_bytes(pid));
    }
    Ok(Memory::Rounds { sessions: SESSIONS, bytes })
}
