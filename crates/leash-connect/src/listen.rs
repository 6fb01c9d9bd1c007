//! The stream for a legacy server's own messages. leash opens it after the handshake, and again whenever it breaks, for
//! as long as the connection lives.

use std::rc::Rc;

use hyper::Method;
use tokio_util::sync::CancellationToken;

use super::backoff::BackOff;
use super::feed;
use super::feed::{Fed, Feed, Place};
use super::link::Link;
use super::reply::{Refusal, Trouble, is_stream};
use super::wire::Outgoing;
use super::{carry, receive, revive};

/// The reason why there is no stream.
pub(super) enum Closed {
    /// The upstream cannot be reached.
    Unreachable,
    /// The upstream refused the stream.
    Refused(Refusal),
}

/// Requests a stream: the server's own, or the rest of the stream that broke after `last_id`.
pub(super) async fn get(link: &Rc<Link>, last_id: Option<&str>) -> Result<Feed, Closed> {
    let url = link.state.borrow().endpoint.clone();
    let headers = link.get_headers(last_id);
    let outgoing = Outgoing { method: Method::GET, url, headers, body: bytes::Bytes::new(), handed: None };
    let answer = link.wire.send(outgoing).await.map_err(|_| Closed::Unreachable)?;
    link.works();
    match answer.response.status().is_success() && is_stream(answer.response.headers()) {
        true => Ok(Feed::new(answer.response.into_body())),
        false => Err(Closed::Refused(carry::refused(answer.response).await)),
    }
}

/// The next step after a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// leash requests the stream again.
    Again,
    /// The server has no such stream.
    Never,
    /// The session is lost.
    Lost,
}

/// Returns the next step after a refusal in the current session.
pub(super) fn next(link: &Link, refusal: &Refusal) -> Next {
    judge(refusal, link.state.borrow().session.as_ref().is_some_and(|session| session.id.is_some()))
}

fn judge(refusal: &Refusal, has_id: bool) -> Next {
    match refusal.status.as_u16() {
        _ if has_id && refusal.forgets_session() => Next::Lost,
        408 | 425 | 429 | 500 | 502..=599 => Next::Again,
        _ => Next::Never,
    }
}

/// Starts a listener for the current session and stops the previous listener.
pub(super) fn begin(link: &Rc<Link>) {
    let token = CancellationToken::new();
    {
        let mut state = link.state.borrow_mut();
        if let Some(before) = state.listening.replace(token.clone()) {
            before.cancel();
        }
        state.listeners += 1;
    }
    let listener = Rc::clone(link);
    link.spawn(async move {
        token.run_until_cancelled(listen(&listener)).await;
        listener.state.borrow_mut().listeners -= 1;
        listener.deaf.notify_waiters();
    });
}

async fn listen(link: &Rc<Link>) {
    let mut place = Place::default();
    let mut back_off = BackOff::default();
    loop {
        match get(link, place.last_id.as_deref()).await {
            Ok(feed) => {
                if hear_out(link, feed, &mut place).await {
                    back_off.worked();
                }
            }
            Err(Closed::Unreachable) => {}
            Err(Closed::Refused(refusal)) => match next(link, &refusal) {
                Next::Again => {}
                Next::Never => return,
                Next::Lost => return revive::lost(link, Trouble::Refused(refusal)),
            },
        }
        if let Some(retry) = place.retry {
            back_off.asked(retry);
        }
        tokio::time::sleep_until(tokio::time::Instant::now() + back_off.next()).await;
    }
}

/// Passes a stream on to its end. Returns true if an event came.
async fn hear_out(link: &Rc<Link>, mut feed: Feed, place: &mut Place) -> bool {
    let mut came = false;
    loop {
        match feed.next().await {
            Fed::Event(event) => {
                came |= !event.is_comment_only();
                place.pass(&event);
                if let Some(message) = feed::message(&event) {
                    receive::pass(link, None, &message).await;
                }
            }
            Fed::TooLarge => receive::too_large(link),
            Fed::Over => return came,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use hyper::StatusCode;

    #[test]
    fn refusal_leads_to_the_next_step() {
        for (status, body, has_id, expected) in [
            (405, "", true, Next::Never),
            (404, "", true, Next::Lost),
            (404, "", false, Next::Never),
            (400, "No valid session ID", true, Next::Lost),
            (400, "?", true, Next::Never),
            (401, "", true, Next::Never),
            (501, "", true, Next::Never),
            (503, "", true, Next::Again),
            (429, "", false, Next::Again),
            (200, "text", true, Next::Never),
        ] {
            let refusal = Refusal {
                status: StatusCode::from_u16(status).expect("a status"),
                body: Bytes::from_static(body.as_bytes()),
            };
            assert_eq!(judge(&refusal, has_id), expected, "{status} {body}");
        }
    }
}
