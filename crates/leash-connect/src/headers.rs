//! The headers of requests to the upstream.

use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};

use super::link::{Link, Session};
use super::parcel::What;
use leash_protocol::envelope::Message;
use leash_protocol::era::Era;
use leash_protocol::headers::{LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID};

impl Link {
    /// Returns the headers that every request has.
    pub(super) fn base_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("leash/", env!("CARGO_PKG_VERSION"))));
        for (name, value) in &self.upstream.headers {
            headers.insert(name, value.clone());
        }
        headers
    }

    /// Returns the headers of the POST for a line.
    pub(super) fn post_headers(&self, what: &What, era: Era, line: &[u8]) -> HeaderMap {
        let mut headers = self.base_headers();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        let mut state = self.state.borrow_mut();
        let modern = era == Era::Modern || (state.session.is_none() && state.spoken.is_some());
        if *what == What::Initialize {
            return headers;
        }
        if !modern {
            session_headers(state.session.as_ref(), &mut headers);
        } else if let Ok(message) = Message::read(line)
            && let [envelope, ..] = message.envelopes()
        {
            state.header_copies.headers(envelope, state.spoken.as_deref(), &mut headers);
            if let Some(version) = envelope.meta().protocol_version {
                state.spoken = Some(version.into_owned());
            }
        }
        headers
    }

    /// Returns the headers of a GET.
    pub(super) fn get_headers(&self, last_id: Option<&str>) -> HeaderMap {
        let mut headers = self.base_headers();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        session_headers(self.state.borrow().session.as_ref(), &mut headers);
        if let Some(value) = last_id.and_then(|id| HeaderValue::from_bytes(id.as_bytes()).ok()) {
            headers.insert(LAST_EVENT_ID, value);
        }
        headers
    }
}

fn session_headers(session: Option<&Session>, headers: &mut HeaderMap) {
    let Some(session) = session else { return };
    for (name, value) in [(SESSION_ID, &session.id), (PROTOCOL_VERSION, &session.version)] {
        // The id was checked before. A version that is not a valid header value is left out.
        if let Some(Ok(value)) = value.as_ref().map(|value| HeaderValue::from_str(value)) {
            headers.insert(name, value);
        }
    }
}
