//! Tests an HTTP server: sessions that are ended, unknown or abandoned, and requests from a foreign origin.

mod judge;
mod test_client;

use std::{ffi::OsString, path::PathBuf, time::Duration};

use hyper::Uri;
use tokio::task::LocalSet;

use self::judge::{HttpFacts, LeftMemory};
use self::test_client::{Answer, TestClient};
use super::subject::{Subject, SubjectOutput, SubjectStart};
use super::{CheckError, CheckReport, Progress, StopSignals};
use leash_model::{clock::Moment, duration, id, identity::Identity};
use leash_tree::{places::Places, platform::identity, platform::proc::Proc};

/// The number of sessions in each round of the memory test, the least number of rounds, and the number of rounds
/// before growth counts as a leak. The first round only warms up. A server with garbage collection may grow by some
/// tens of megabytes before its first collection.
const SESSIONS: u64 = 60;
const ROUNDS: usize = 4;
const MOST_ROUNDS: usize = 32;

/// Extra time after which an abandoned session must have ended: servers check only from time to time.
const SLACK: Duration = Duration::from_millis(1500);

/// The HTTP server to test, and the limits.
#[derive(Clone, Debug)]
pub struct HttpCheck {
    /// The server's URL.
    pub url: String,
    /// Sent as `Authorization: Bearer`.
    pub bearer: Option<String>,
    /// The timeout of `initialize`.
    pub ready: Duration,
    /// The leash binary. When it is started as `PROGRAM check --part visitor --journal FILE --url URL --ready
    /// DURATION`, with the bearer token in [`VISITOR_TOKEN`], it prints the session id that [`visit`] reports and
    /// handles no signal meanwhile. A session is abandoned only when its client process has exited.
    pub program: PathBuf,
    /// The idle time after which a session must have ended.
    pub expect_idle: Option<Duration>,
    /// The server's process, for the memory test.
    pub pid: Option<i32>,
    /// True if warnings are findings.
    pub strict: bool,
}

impl HttpCheck {
    /// Runs the test. `progress` receives the description of each step.
    pub fn run(&self, places: &Places, stop: &StopSignals, progress: Progress<'_>) -> Result<CheckReport, CheckError> {
        let wrong = |why: &str| CheckError::Url { url: self.url.clone(), why: why.to_owned() };
        let url: Uri = self.url.parse().map_err(|_| wrong("it can't be read"))?;
        if url.authority().is_none() || !matches!(url.scheme_str(), Some("http" | "https")) {
            return Err(wrong("write http://HOST:PORT/PATH or https://..."));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = TestClient::new(url.clone(), self.bearer.as_deref(), self.ready, stop);
        let facts = LocalSet::new().block_on(&runtime, self.look(&client, places, progress))?;
        let shown = leash_upstream::delete::shown(&url);
        Ok(CheckReport::new("http", shown, judge::rows(&facts), self.strict))
    }

    /// Collects the facts, and always closes the sessions that are left open.
    async fn look(
        &self,
        client: &TestClient<'_>,
        places: &Places,
        progress: Progress<'_>,
    ) -> Result<HttpFacts, CheckError> {
        // A second signal skips the rest of the test.
        let facts = tokio::select! {
            facts = self.find(client, places, progress) => facts,
            () = client.stop.wait(2) => Ok(HttpFacts::default()),
        };
        client.close().await;
        client.stop.check().and(facts)
    }

    async fn find(
        &self,
        client: &TestClient<'_>,
        places: &Places,
        progress: Progress<'_>,
    ) -> Result<HttpFacts, CheckError> {
        let mut facts = HttpFacts::default();
        progress("opens a session");
        let opened = client.open().await;
        let session = opened.session().map(str::to_owned);
        if !opened.is_result() {
            facts.modern = Some(client.discover().await);
        }
        facts.opened = Some(opened);
        if let Some(session) = &session {
            progress("ends it");
            facts.deleted = Some(client.delete(session).await);
            facts.afterwards = Some(client.ask(session).await);
            // As long as the ids of the SDKs, and in their alphabet.
            facts.unknown = Some(client.ask(&format!("00000000-0000-4000-8000-{}", &id::random()[..12])).await);
            facts.abandoned = self.abandon(client, places, progress).await?;
        }
        progress("sends a request as a foreign web page");
        let modern = facts.modern.as_ref().is_some_and(Answer::is_result);
        facts.foreign = Some(client.send_foreign_origin(modern).await);
        client.close().await;
        if let (Some(pid), true) = (self.pid, session.is_some()) {
            progress("opens and ends many sessions");
            facts.memory = measure(client, pid).await?;
        }
        Ok(facts)
    }

    /// Checks a session that no client uses. It sends only one request, because each request would restart the idle
    /// time.
    async fn abandon(
        &self,
        client: &TestClient<'_>,
        places: &Places,
        progress: Progress<'_>,
    ) -> Result<Option<(Duration, Answer)>, CheckError> {
        let Some(idle) = self.expect_idle else { return Ok(None) };
        let wait = idle + SLACK;
        let Some(session) = self.visited(client, places)? else {
            return Ok(Some((wait, Answer::Failed("no session could be opened".to_owned()))));
        };
        progress(&format!("waits {} for an abandoned session to end", duration::rough(wait)));
        let until = tokio::time::Instant::now() + wait;
        tokio::select! {
            () = tokio::time::sleep_until(until) => {}
            () = client.stop.wait(1) => return Ok(None),
        }
        Ok(Some((wait, client.ask(&session).await)))
    }

    /// The session of a visitor process that has exited. A server that watches its clients would keep a session of
    /// ours as long as this process lives.
    fn visited(&self, client: &TestClient<'_>, places: &Places) -> Result<Option<String>, CheckError> {
        let ready = duration::exact(self.ready);
        let words = ["check", "--part", "visitor", "--journal", "/dev/null", "--url", &self.url, "--ready", &ready];
        let words = words.map(OsString::from);
        let command: Vec<OsString> = std::iter::once(self.program.clone().into()).chain(words).collect();
        let env = [(VISITOR_TOKEN.into(), self.bearer.as_ref().map(OsString::from))];
        // The time to start, to open a session, and to report it.
        let time_limit = self.ready + test_client::TIME_LIMIT;
        // This wait can't be stopped: a session with an unknown id could not be ended.
        let never = StopSignals::never();
        let mut visitor = Subject::start(&SubjectStart {
            command: &command,
            env: &env,
            places,
            time_limit: time_limit + test_client::TIME_LIMIT,
            shares_stderr: false,
            terminal: false,
            stop: &never,
        })?;
        let session = match visitor.read_line(Moment::now() + time_limit) {
            SubjectOutput::Line(line) => Some(String::from_utf8_lossy(&line).into_owned()),
            SubjectOutput::End | SubjectOutput::Nothing => None,
        };
        if let Some(session) = &session {
            client.record_open(session);
            // The visitor sends `notifications/initialized` and exits. If the check was stopped, that is not needed.
            if client.stop.asked().is_none() {
                visitor.wait_leader(Moment::now() + test_client::TIME_LIMIT);
            }
        }
        // The visitor has reported everything.
        let _ = visitor.end();
        Ok(session)
    }
}

/// The variable that passes the bearer token to a visitor.
pub const VISITOR_TOKEN: &str = "LEASH_CHECK_TOKEN";

/// Opens a session within `ready` and leaves it open. Calls `tell` with its id as soon as it is known, because the
/// parent process must end the session even if this process fails. For a process without other tasks. Returns true if
/// a session was opened.
pub fn visit(url: &str, bearer: Option<&str>, ready: Duration, tell: impl FnOnce(&str)) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (Ok(url), Ok(runtime)) = (url.parse::<Uri>(), runtime) else { return false };
    let stop = StopSignals::never();
    let client = TestClient::new(url, bearer, ready, &stop);
    let visiting = async {
        client.initialize(&[]).await;
        let Some(session) = client.any_open() else { return false };
        tell(&session);
        client.initialized(&session).await;
        true
    };
    LocalSet::new().block_on(&runtime, visiting)
}

/// The server's memory after each round of sessions that were opened and ended.
async fn measure(client: &TestClient<'_>, pid: i32) -> Result<LeftMemory, CheckError> {
    let proc = Proc::own().map_err(CheckError::Proc)?;
    let Some(held) = leash_tree::platform::identity::HeldProcess::open(&proc, pid) else {
        return Ok(LeftMemory::Unknown(format!("there is no process {pid}")));
    };
    let id: Identity = held.id;
    let mut bytes = Vec::new();
    let give_up = Moment::now() + Duration::from_secs(120);
    while bytes.len() <= ROUNDS || (judge::still_grows(SESSIONS, &bytes) && bytes.len() <= MOST_ROUNDS) {
        for _ in 0..SESSIONS {
            let opened = client.open().await;
            let Some(session) = opened.session() else {
                return Ok(LeftMemory::Unknown(format!("it stopped opening sessions: {}", opened.describe())));
            };
            client.ask(session).await;
            let ended = client.delete(session).await;
            client.stop.check()?;
            // A server whose sessions could not be ended may grow rightly.
            if !matches!(ended.status(), Some(200..300)) {
                return Ok(LeftMemory::Unknown(format!("its sessions can't be ended: {}", ended.describe())));
            }
            if Moment::now() >= give_up {
                return Ok(LeftMemory::Unknown("it takes too long".to_owned()));
            }
        }
        if !identity::is_alive(id, &proc) {
            return Ok(LeftMemory::Unknown(format!("the process {pid} is gone")));
        }
        bytes.push(proc.proportional_bytes(pid));
    }
    Ok(LeftMemory::Rounds { sessions: SESSIONS, bytes })
}
