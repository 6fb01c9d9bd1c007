//! The data for a DELETE: the address of the client's requests, and the headers that it sends with them. These include
//! credentials, so they are kept in memory only.

use hyper::header::{self, HeaderName};
use hyper::{HeaderMap, Method, Request, Uri, Version, http::Extensions};

use super::request_body::RequestBody;
use leash_protocol::era;
use leash_protocol::headers::{self, LAST_EVENT_ID, METHOD, NAME, PARAM_PREFIX, PROTOCOL_VERSION, SESSION_ID};

/// Headers that stay valid for later requests even if a client does not repeat them.
const LASTING: [HeaderName; 4] = [PROTOCOL_VERSION, header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION];

/// Headers that apply to one request and its body only.
const PASSING: [HeaderName; 17] = [
    SESSION_ID,
    LAST_EVENT_ID,
    METHOD,
    NAME,
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::EXPECT,
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
    header::IF_UNMODIFIED_SINCE,
    header::RANGE,
    header::CACHE_CONTROL,
];

/// The parts of a request that are valid for the next one as well.
#[derive(Clone, Debug)]
pub(super) struct RequestTemplate {
    uri: Uri,
    version: Version,
    headers: HeaderMap,
    /// The data that layers above have added about the client; layers below may need it.
    extensions: Extensions,
}

impl RequestTemplate {
    pub(super) fn of<B>(request: &Request<B>) -> RequestTemplate {
        let mut headers = request.headers().clone();
        headers::strip_hop_by_hop(&mut headers);
        PASSING.iter().for_each(|name| drop(headers.remove(name)));
        let params: Vec<HeaderName> =
            headers.keys().filter(|name| name.as_str().starts_with(PARAM_PREFIX)).cloned().collect();
        params.iter().for_each(|name| drop(headers.remove(name)));
        // The modern era has no DELETE: a server that has a session for such a client treats it as a legacy one.
        if headers.get(PROTOCOL_VERSION).and_then(|value| value.to_str().ok()).is_some_and(era::is_modern_version) {
            headers.remove(PROTOCOL_VERSION);
        }
        RequestTemplate {
            uri: request.uri().clone(),
            version: request.version(),
            headers,
            extensions: request.extensions().clone(),
        }
    }

    /// The same, with lasting headers of an earlier request that this one does not repeat.
    pub(super) fn after(mut self, before: &RequestTemplate) -> RequestTemplate {
        for name in LASTING {
            if !self.headers.contains_key(&name) {
                for value in before.headers.get_all(&name) {
                    self.headers.append(name.clone(), value.clone());
                }
            }
        }
        self
    }

    /// True if another request went to the same path.
    pub(super) fn is_for(&self, other: &RequestTemplate) -> bool {
        self.uri.path() == other.uri.path()
    }

    /// The DELETE of a session.
    pub(super) fn delete<B>(&self, token: &str) -> Request<RequestBody<B>> {
        let mut request = Request::new(RequestBody::empty());
        *request.method_mut() = Method::DELETE;
        *request.uri_mut() = self.uri.clone();
        *request.version_mut() = self.version;
        *request.extensions_mut() = self.extensions.clone();
        let headers = request.headers_mut();
        *headers = self.headers.clone();
        headers.insert(header::ACCEPT, headers::ACCEPT_BOTH);
        headers::set_session(headers, Some(token), None);
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn request(headers: &[(&'static str, &'static str)]) -> Request<()> {
        let mut request = Request::new(());
        *request.uri_mut() = Uri::from_static("http://localhost/mcp?key=1");
        for (name, value) in headers {
            request.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        request
    }

    fn sent(template: &RequestTemplate) -> Vec<String> {
        let request = template.delete::<()>("s-1");
        assert_eq!(
            (request.method(), request.uri()),
            (&Method::DELETE, &Uri::from_static("http://localhost/mcp?key=1"))
        );
        let line = |(name, value): (&HeaderName, &HeaderValue)| format!("{name}: {}", value.to_str().unwrap());
        let mut lines: Vec<String> = request.headers().iter().map(line).collect();
        lines.sort();
        lines.retain(|line| !line.starts_with("accept:"));
        lines
    }

    #[test]
    fn headers_of_the_client_are_kept_and_headers_of_the_message_are_not() {
        let template = RequestTemplate::of(&request(&[
            ("host", "localhost"),
            ("origin", "http://localhost"),
            ("x-api-key", "k"),
            ("authorization", "Bearer t"),
            ("mcp-protocol-version", "2025-06-18"),
            ("mcp-session-id", "another"),
            ("mcp-method", "tools/call"),
            ("mcp-param-path", "/"),
            ("content-length", "12"),
            ("content-type", "application/json"),
            ("connection", "keep-alive, x-hop"),
            ("x-hop", "1"),
            ("last-event-id", "4"),
        ]));
        let kept = [
            "authorization: Bearer t",
            "host: localhost",
            "mcp-protocol-version: 2025-06-18",
            "mcp-session-id: s-1",
            "origin: http://localhost",
            "x-api-key: k",
        ];
        assert_eq!(sent(&template), kept);
    }

    #[test]
    fn lasting_headers_are_remembered() {
        let first =
            RequestTemplate::of(&request(&[("authorization", "Bearer 1"), ("cookie", "a=1"), ("cookie", "b=2")]));
        let next =
            RequestTemplate::of(&request(&[("authorization", "Bearer 2"), ("mcp-protocol-version", "2025-11-25")]));
        let both = ["authorization: Bearer 2", "cookie: a=1", "cookie: b=2", "mcp-protocol-version: 2025-11-25"];
        assert_eq!(sent(&next.after(&first)), [&both[..], &["mcp-session-id: s-1"]].concat());
    }

    #[test]
    fn a_modern_version_is_not_sent() {
        let template = RequestTemplate::of(&request(&[("mcp-protocol-version", "2026-07-28")]));
        assert_eq!(sent(&template), ["mcp-session-id: s-1"]);
    }
}
