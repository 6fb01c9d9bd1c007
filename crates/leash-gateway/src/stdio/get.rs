//! GET in a legacy session: the server's own messages, or the rest of a stream whose connection was lost.

use std::rc::Rc;

use bytes::Bytes;

use super::log::{GET, StreamId};
use super::reader::{StreamBody, StreamReader};
use super::{events::Events, post};
use crate::respond::{self, Answer};
use crate::{call::Call, state::session::ClientSession};
use leash_protocol::headers;

/// Answers a GET.
pub(super) fn answer(session: &Rc<ClientSession>, call: &Call) -> Result<Answer, Answer> {
    let bridge = post::bridge(session)?;
    post::check_version(&call.headers, &bridge)?;
    let Some(seen) = call.headers.get(headers::LAST_EVENT_ID) else {
        let reader = StreamReader::listen(&bridge).ok_or_else(respond::second_listener)?;
        let first = reader.priming();
        return Ok(listen(session, reader, first));
    };
    let (stream, seen) = seen.to_str().ok().and_then(event_id).ok_or_else(respond::unknown_event)?;
    // A client that names an event has lost the connection on which it came, even if the gateway has not noticed yet.
    let reader = StreamReader::resume(&bridge, stream, seen).ok_or_else(respond::unknown_event)?;
    if stream == GET {
        return Ok(listen(session, reader, None));
    }
    Ok(Events::answer(StreamBody::new(reader, session.listens()), None))
}

/// The response with the server's own messages.
fn listen(session: &Rc<ClientSession>, reader: StreamReader, first: Option<Bytes>) -> Answer {
    let every = session.server.settings().policy.keep_alive.pause();
    Events::answer(StreamBody::new(reader, session.listens()).pinging(every), first)
}

/// The stream and the number in an event's id.
fn event_id(text: &str) -> Option<(StreamId, u64)> {
    let (stream, number) = text.split_once('-')?;
    Some((stream.parse().ok()?, number.parse().ok()?))
}
