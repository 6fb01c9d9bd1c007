//! The headers of requests to the upstream.

use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};

use super::Connection;
use crate::machine::SessionHeaders;
use crate::message::{HostMessage, MessageKind};
use leash_protocol::headers::{ACCEPT_BOTH, LAST_EVENT_ID, set_session};
use leash_protocol::{envelope::Message, era::Era};

impl Connection {
    /// Returns the headers that every request has.
    pub(crate) fn base_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("leash/", env!("CARGO_PKG_VERSION"))));
        for (name, value) in &self.upstream.headers {
            headers.insert(name, value.clone());
        }
        headers
    }

    /// Returns the headers of the POST for a message.
    pub(crate) fn post_headers(&self, message: &HostMessage) -> HeaderMap {
        let mut headers = self.base_headers();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, ACCEPT_BOTH);
        if message.kind == MessageKind::Initialize {
            return headers;
        }
        let (life, mut traffic) = (self.life(), self.traffic.borrow_mut());
        let modern = message.era == Era::Modern || (life.session().is_none() && traffic.modern_version.is_some());
        if !modern {
            session_headers(life.session(), &mut headers);
        } else if let Ok(message) = Message::read(&message.line)
            && let [envelope, ..] = message.envelopes()
        {
            traffic.header_copies.headers(envelope, traffic.modern_version.as_deref(), &mut headers);
            if let Some(version) = envelope.meta().protocol_version {
                traffic.modern_version = Some(version.into_owned());
            }
        }
        headers
    }

    /// Returns the headers of a GET.
    pub(crate) fn get_headers(&self, last_id: Option<&str>) -> HeaderMap {
        let mut headers = self.base_headers();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        session_headers(self.life().session(), &mut headers);
        if let Some(value) = last_id.and_then(|id| HeaderValue::from_bytes(id.as_bytes()).ok()) {
            headers.insert(LAST_EVENT_ID, value);
        }
        headers
    }
}

fn session_headers(session: Option<&SessionHeaders>, headers: &mut HeaderMap) {
    if let Some(SessionHeaders { id, version }) = session {
        set_session(headers, id.as_deref(), version.as_deref());
    }
}
