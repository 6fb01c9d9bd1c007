//! GET in a legacy session: the server's own messages, or the rest of a stream whose connection was lost.

use std::rc::Rc;

use super::super::front::Call;
use super::super::respond::{self, Answer};
use super::super::session::Session;
use super::bridge::Reader;
use super::events::Events;
use super::log::StreamId;
use super::post;
use crate::protocol::headers;

/// Answers a GET.
pub(super) fn answer(session: &Rc<Session>, call: &Call) -> Result<Answer, Answer> {
    let bridge = post::bridge(session)?;
    post::check_version(&call.headers, &bridge)?;
    let Some(seen) = call.headers.get(headers::LAST_EVENT_ID) else {
        let reader = Reader::listen(&bridge).ok_or_else(respond::second_listener)?;
        return Ok(Events::answer(reader, session.listens(), bridge.primes()));
    };
    // A client that names an event has lost the connection on which it came, whatever we have noticed of that.
    let resumed =
        seen.to_str().ok().and_then(event_id).and_then(|(stream, seen)| Reader::resume(&bridge, stream, seen));
    let reader = resumed.ok_or_else(respond::unknown_event)?;
    Ok(Events::answer(reader, session.listens(), false))
}

/// The stream and the number that an event's id is made of.
fn event_id(text: &str) -> Option<(StreamId, u64)> {
    let (stream, number) = text.split_once('-')?;
    Some((stream.parse().ok()?, number.parse().ok()?))
}
