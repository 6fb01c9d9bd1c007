//! Ends a session at an upstream server: sends DELETE until the response is final or the deadline has passed.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{HeaderMap, Method, Request, StatusCode, Uri, header::ACCEPT};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::client::{UpstreamClient, UpstreamError};
use leash_model::delete::{DeleteDecision, judge, needs_body};
use leash_model::receipt::{DeleteHow, Fate, UpstreamEnd};
use leash_model::{clock::Moment, limits};
use leash_protocol::headers::{ACCEPT_BOTH, set_session};

pub use leash_model::delete::says_unknown;

/// Everything that a DELETE needs. It has credentials, so it is kept only in memory.
#[derive(Clone, Debug)]
pub struct DeleteTarget {
    /// The server's address.
    pub url: Uri,
    /// The session's id at the server.
    pub session_id: String,
    /// The agreed protocol version.
    pub version: Option<String>,
    /// The latest credentials and the configured headers.
    pub headers: HeaderMap,
}

impl DeleteTarget {
    fn request(&self) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::default());
        *request.method_mut() = Method::DELETE;
        *request.uri_mut() = self.url.clone();
        let headers = request.headers_mut();
        *headers = self.headers.clone();
        headers.insert(ACCEPT, ACCEPT_BOTH);
        set_session(headers, Some(&self.session_id), self.version.as_deref());
        request
    }
}

/// The result of one try.
#[derive(Debug)]
enum TryResult {
    /// The server responded.
    Answered(StatusCode, Bytes),
    /// The server did not respond within [`limits::DELETE_TRY`].
    Silent,
    /// The DELETE could not be sent, or the connection broke.
    Failed(UpstreamError),
}

impl TryResult {
    /// The status and the body of the response; no status if there was none.
    fn answer(&self) -> (Option<u16>, &[u8]) {
        match self {
            TryResult::Answered(status, body) => (Some(status.as_u16()), body),
            TryResult::Silent | TryResult::Failed(_) => (None, &[]),
        }
    }
}

/// The result of a DELETE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteResult {
    /// How the session ended.
    pub how: DeleteHow,
    /// The last HTTP status, if the server responded.
    pub status: Option<StatusCode>,
    /// The number of DELETE requests that were sent.
    pub tries: u32,
    /// The reason why the session is left, for people.
    pub why: Option<String>,
    /// leash had no more time. The result is not final, and the keeper or the next start must end the session.
    pub cut_short: bool,
}

impl DeleteResult {
    /// The result for a session that the upstream no longer knows. leash sent no DELETE.
    pub fn forgotten(status: StatusCode) -> DeleteResult {
        DeleteResult { how: DeleteHow::Forgotten, status: Some(status), tries: 0, why: None, cut_short: false }
    }

    /// The result for a session that ended with its connection.
    pub fn closed() -> DeleteResult {
        DeleteResult { how: DeleteHow::Closed, status: None, tries: 0, why: None, cut_short: false }
    }

    /// Returns the end for a receipt.
    pub fn receipt(&self, url: &Uri, id: &str) -> UpstreamEnd {
        UpstreamEnd {
            url: shown(url),
            id: shortened(id),
            fate: if self.how.is_gone() { Fate::Gone } else { Fate::Left },
            how: self.how,
            status: self.status.map(|status| status.as_u16()),
            tries: self.tries,
            why: self.why.clone(),
        }
    }
}

/// Returns an address without its query, because users put keys there.
pub fn shown(url: &Uri) -> String {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    format!("{}://{authority}{}", url.scheme_str().unwrap_or("http"), url.path())
}

/// Returns the beginning of an id: enough to find it in a server's log, too little to use the session.
pub(crate) fn shortened(id: &str) -> String {
    id.chars().take(8).collect()
}

/// Ends a session upstream. Returns when the result is final or the deadline has passed.
pub async fn delete(client: &UpstreamClient, target: &DeleteTarget) -> DeleteResult {
    let give_up = Moment::on_runtime() + limits::DELETE_GIVE_UP;
    let mut number = 0;
    loop {
        let Some(tried) = client.deadline.before(try_once(client, target)).await else {
            return cut_short(number);
        };
        number += 1;
        let (status, body) = tried.answer();
        let wait = match judge(status, body, number) {
            DeleteDecision::Settled(how) => return settled(how, tried, number),
            DeleteDecision::Again(wait) => jittered(wait),
        };
        if Moment::on_runtime() + wait >= give_up {
            return settled(DeleteHow::Unreachable, tried, number);
        }
        if client.deadline.within(wait).await {
            return DeleteResult { cut_short: true, ..settled(DeleteHow::Unreachable, tried, number) };
        }
    }
}

async fn try_once(client: &UpstreamClient, target: &DeleteTarget) -> TryResult {
    let sent = async {
        let answer = client.send(target.request()).await?;
        let status = answer.status();
        // A body that breaks off or is too long counts as empty.
        let body = match needs_body(status.as_u16()) {
            true => Limited::new(answer.into_body(), limits::DELETE_BODY).collect().await.ok(),
            false => None,
        };
        Ok((status, body.map(|body| body.to_bytes()).unwrap_or_default()))
    };
    match tokio::time::timeout(limits::DELETE_TRY, sent).await {
        Ok(Ok((status, body))) => TryResult::Answered(status, body),
        Ok(Err(error)) => TryResult::Failed(error),
        Err(_) => TryResult::Silent,
    }
}

fn settled(how: DeleteHow, tried: TryResult, tries: u32) -> DeleteResult {
    let (status, trouble) = match tried {
        TryResult::Answered(status, _) => (Some(status), format!("the server answered {}", status.as_u16())),
        TryResult::Silent => (None, format!("the server did not answer within {} s", limits::DELETE_TRY.as_secs())),
        TryResult::Failed(error) => (None, error.to_string()),
    };
    let why = match how {
        DeleteHow::Deleted | DeleteHow::Forgotten | DeleteHow::Closed => None,
        DeleteHow::Unsupported if matches!(status.map(|status| status.as_u16()), Some(404 | 405)) => {
            Some("the server does not let clients end sessions".to_owned())
        }
        DeleteHow::Denied => {
            Some(format!("{trouble}: it does not accept the credentials, or leash no longer has them"))
        }
        DeleteHow::Unsupported | DeleteHow::Unreachable => Some(trouble),
    };
    DeleteResult { how, status, tries, why, cut_short: false }
}

/// The result if the gateway had no more time.
pub fn cut_short(tries: u32) -> DeleteResult {
    let why = "leash stopped before the server answered".to_owned();
    DeleteResult { how: DeleteHow::Unreachable, status: None, tries, why: Some(why), cut_short: true }
}

/// Makes a pause up to a quarter longer or shorter, so that a thousand sessions of a restarted server do not retry at
/// the same moment.
fn jittered(wait: Duration) -> Duration {
    let mut random = [0; 1];
    let _ = getrandom(&mut random, GetRandomFlags::empty());
    wait * (384 + u32::from(random[0])) / 512
}

#[cfg(test)]
mod tests;
