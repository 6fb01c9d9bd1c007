//! The end of a session at an upstream server: DELETE, again and again until the answer is final or patience is over.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{ACCEPT, HeaderValue};
use hyper::{HeaderMap, Method, Request, StatusCode, Uri};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::sync::watch;

use crate::client::{Client, UpstreamError};
use leash_model::clock::Moment;
use leash_model::limits;
use leash_model::receipt::{DeleteHow, Fate, UpstreamEnd};
use leash_protocol::headers::{PROTOCOL_VERSION, SESSION_ID};

/// All that a DELETE needs. Credentials are in here: it is kept in memory and nowhere else.
#[derive(Clone, Debug)]
pub struct Ticket {
    /// The server.
    pub url: Uri,
    /// The session's id there.
    pub session_id: String,
    /// The protocol version that was agreed upon.
    pub version: Option<String>,
    /// The credentials last seen and the configured headers.
    pub headers: HeaderMap,
}

impl Ticket {
    fn request(&self) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::default());
        *request.method_mut() = Method::DELETE;
        *request.uri_mut() = self.url.clone();
        let headers = request.headers_mut();
        *headers = self.headers.clone();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        // Both were read from a header or from the ledger, which checks them; one that can't be sent is simply not.
        let own = [(SESSION_ID, Some(&self.session_id)), (PROTOCOL_VERSION, self.version.as_ref())];
        for (name, value) in own {
            if let Some(Ok(value)) = value.map(|value| HeaderValue::from_str(value)) {
                headers.insert(name, value);
            }
        }
        request
    }
}

/// What one try came to.
#[derive(Debug)]
pub(crate) enum Tried {
    /// There was an answer.
    Answered(StatusCode, Bytes),
    /// There was none within [`limits::DELETE_TRY`].
    Silent,
    /// It could not be sent, or the connection broke.
    Failed(UpstreamError),
}

/// What follows from a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is settled.
    Settled(DeleteHow),
    /// Another try, after so long.
    Again(Duration),
}

/// Decides what the `number`th try (from 1) means.
pub(crate) fn judge(tried: &Tried, number: u32) -> Verdict {
    let again = || match number {
        limits::DELETE_TRIES.. => Verdict::Settled(DeleteHow::Unreachable),
        _ => Verdict::Again(limits::DELETE_BACK_OFF * 2_u32.saturating_pow(number.saturating_sub(1))),
    };
    let Tried::Answered(status, body) = tried else { return again() };
    match status.as_u16() {
        200..=299 => Verdict::Settled(DeleteHow::Deleted),
        404 if says_no_route(body) => Verdict::Settled(DeleteHow::Unsupported),
        404 | 410 => Verdict::Settled(DeleteHow::Forgotten),
        400 if says_unknown(body) => Verdict::Settled(DeleteHow::Forgotten),
        401 | 403 | 407 => Verdict::Settled(DeleteHow::Denied),
        // Too slow, too early, too many: the server itself says that another time may do.
        408 | 425 | 429 | 500 | 502..=599 => again(),
        // 405, 501 and whatever else a server that knows no DELETE says: asking again changes nothing.
        _ => Verdict::Settled(DeleteHow::Unsupported),
    }
}

/// Whether the body of a 400 says that the session is not known. There is no code for it: servers say it in words.
pub fn says_unknown(body: &[u8]) -> bool {
    const WORDS: [&str; 9] = [
        "not found",
        "unknown",
        "invalid",
        "no valid",
        "expired",
        "not exist",
        "terminated",
        "no such",
        "not initialized",
    ];
    let text = String::from_utf8_lossy(body).to_ascii_lowercase();
    text.contains("session") && WORDS.iter().any(|word| text.contains(word))
}

/// Whether the body of a 404 speaks of the method and not of the session: what Express says where nothing was registered.
fn says_no_route(body: &[u8]) -> bool {
    String::from_utf8_lossy(body).to_ascii_lowercase().contains("cannot delete")
}

/// How a DELETE went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    pub how: DeleteHow,
    /// The last HTTP status, if there was an answer.
    pub status: Option<StatusCode>,
    pub tries: u32,
    /// Why it is left.
    pub why: Option<String>,
    /// leash had no more time: it is not settled, and the next start must see to it.
    pub cut_short: bool,
}

impl Deleted {
    /// A session that the upstream itself has said to be gone: nothing was sent.
    pub fn forgotten(status: StatusCode) -> Deleted {
        Deleted { how: DeleteHow::Forgotten, status: Some(status), tries: 0, why: None, cut_short: false }
    }

    /// A session that was over with its connection.
    pub fn closed() -> Deleted {
        Deleted { how: DeleteHow::Closed, status: None, tries: 0, why: None, cut_short: false }
    }

    /// What a receipt says of it.
    pub fn receipt(&self, url: &Uri, id: &str) -> UpstreamEnd {
        let gone = matches!(self.how, DeleteHow::Deleted | DeleteHow::Forgotten | DeleteHow::Closed);
        UpstreamEnd {
            url: shown(url),
            id: shortened(id),
            fate: if gone { Fate::Gone } else { Fate::Left },
            how: self.how,
            status: self.status.map(|status| status.as_u16()),
            tries: self.tries,
            why: self.why.clone(),
        }
    }
}

/// An address without its query: people put keys there.
pub fn shown(url: &Uri) -> String {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    format!("{}://{authority}{}", url.scheme_str().unwrap_or("http"), url.path())
}

/// The beginning of an id: enough to find it in a server's log, too little to use the session.
pub(crate) fn shortened(id: &str) -> String {
    id.chars().take(8).collect()
}

/// Ends a session upstream; returns when that is settled, one way or the other.
pub async fn delete(client: &Client, ticket: &Ticket) -> Deleted {
    let give_up = Moment::now() + limits::DELETE_GIVE_UP;
    let mut number = 0;
    loop {
        let Some(tried) = client.hurry.before(try_once(client, ticket)).await else {
            return cut_short(number);
        };
        number += 1;
        let wait = match judge(&tried, number) {
            Verdict::Settled(how) => return settled(how, tried, number),
            Verdict::Again(wait) => jittered(wait),
        };
        if Moment::now() + wait >= give_up {
            return settled(DeleteHow::Unreachable, tried, number);
        }
        if client.hurry.within(wait).await {
            return Deleted { cut_short: true, ..settled(DeleteHow::Unreachable, tried, number) };
        }
    }
}

async fn try_once(client: &Client, ticket: &Ticket) -> Tried {
    let sent = async {
        let answer = client.send(ticket.request()).await?;
        let status = answer.status();
        // Only these need to be read; a body that breaks off, or has no end, says nothing.
        let body = match status {
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND => {
                Limited::new(answer.into_body(), limits::DELETE_BODY).collect().await.ok()
            }
            _ => None,
        };
        Ok((status, body.map(|body| body.to_bytes()).unwrap_or_default()))
    };
    match tokio::time::timeout(limits::DELETE_TRY, sent).await {
        Ok(Ok((status, body))) => Tried::Answered(status, body),
        Ok(Err(error)) => Tried::Failed(error),
        Err(_) => Tried::Silent,
    }
}

fn settled(how: DeleteHow, tried: Tried, tries: u32) -> Deleted {
    let (status, trouble) = match tried {
        Tried::Answered(status, _) => (Some(status), format!("the server answered {}", status.as_u16())),
        Tried::Silent => (None, format!("the server did not answer within {} s", limits::DELETE_TRY.as_secs())),
        Tried::Failed(error) => (None, error.to_string()),
    };
    let why = match how {
        DeleteHow::Deleted | DeleteHow::Forgotten | DeleteHow::Closed => None,
        DeleteHow::Unsupported if matches!(status.map(|status| status.as_u16()), Some(404 | 405)) => {
            Some("the server does not let clients end sessions".to_owned())
        }
        DeleteHow::Denied => Some(format!("{trouble}: the credentials are not accepted, or not known any more")),
        DeleteHow::Unsupported | DeleteHow::Unreachable => Some(trouble),
    };
    Deleted { how, status, tries, why, cut_short: false }
}

/// The gateway had no more time.
pub fn cut_short(tries: u32) -> Deleted {
    let why = "leash stopped before the server answered".to_owned();
    Deleted { how: DeleteHow::Unreachable, status: None, tries, why: Some(why), cut_short: true }
}

/// Up to a quarter longer or shorter: a thousand sessions of a server that restarts do not come back in one instant.
fn jittered(wait: Duration) -> Duration {
    let mut random = [0; 1];
    let _ = getrandom(&mut random, GetRandomFlags::empty());
    wait * (384 + u32::from(random[0])) / 512
}

/// A moment after which no DELETE goes on, once there is one. Cheap to clone; clones share it.
#[derive(Clone, Debug)]
pub struct Hurry(Rc<watch::Sender<Option<Moment>>>);

impl Default for Hurry {
    fn default() -> Hurry {
        Hurry(Rc::new(watch::Sender::new(None)))
    }
}

impl Hurry {
    /// Whatever is not settled by then is given up.
    pub fn by(&self, deadline: Moment) {
        self.0.send_replace(Some(deadline));
    }

    /// Waits for `work`, and gives up on it when time is up.
    pub async fn before<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.up() => None,
            done = work => Some(done),
        }
    }

    /// Waits so long, or until time is up; whether it is.
    pub async fn within(&self, wait: Duration) -> bool {
        tokio::time::timeout(wait, self.up()).await.is_ok()
    }

    /// Waits until there is a moment at all: leash is going to stop.
    pub async fn announced(&self) {
        // The sender is ours: it is not gone while we wait.
        let _ = self.0.subscribe().wait_for(Option::is_some).await;
    }

    async fn up(&self) {
        let mut changed = self.0.subscribe();
        loop {
            let deadline = *changed.borrow_and_update();
            let left = deadline.map(|deadline| deadline.since(Moment::now()));
            match left {
                Some(Duration::ZERO) => return,
                // The sender is ours: it is not gone while we wait. Time that has passed is looked at again.
                Some(left) => drop(tokio::time::timeout(left, changed.changed()).await),
                None => drop(changed.changed().await),
            }
        }
    }
}

#[cfg(test)]
mod tests;
