//! Decides whether a request of the page may be served, before its credential is looked at. Pure.
//!
//! The rules are stricter than those of MCP clients: only a browser of the gateway's own user, on this machine, that
//! names this very listener. So another program on another port of this machine is another origin, a name that DNS
//! rebinding points to this machine is refused, and a stolen cookie is of no use to another user.

use std::net::{IpAddr, SocketAddr};

use hyper::header::{HOST, HeaderName, HeaderValue, ORIGIN};
use hyper::{HeaderMap, Method, Uri};

use crate::connection::{PeerUser, is_forwarded};

/// Set by browsers: the relation of the page that sent the request to this one.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The reason that a request of the page is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageRefusal {
    /// The peer is another user or another machine, or its user is not known.
    Peer,
    /// `Host` does not name this listener.
    Host,
    /// Another page sent the request; or an action has no `Origin`.
    Origin,
}

impl PageRefusal {
    /// The sentence for the user.
    pub(super) fn text(self) -> &'static str {
        match self {
            PageRefusal::Peer => "Forbidden: only browsers of the gateway's user on this machine may use this page\n",
            PageRefusal::Host => {
                "Forbidden: the Host is not this gateway; open the link that `leash status --open` prints\n"
            }
            PageRefusal::Origin => "Forbidden: another page sent this request\n",
        }
    }
}

/// What a request asks for, as far as the rules care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// A user opens the page or a link to it, from anywhere.
    Opening,
    /// The page itself reads something.
    Reading,
    /// The page itself ends something.
    Action,
}

impl RequestKind {
    pub(super) fn of(method: &Method, path: &str) -> RequestKind {
        match path {
            _ if !matches!(*method, Method::GET | Method::HEAD) => RequestKind::Action,
            "/" | super::DOCUMENT | super::OPEN => RequestKind::Opening,
            _ => RequestKind::Reading,
        }
    }
}

/// Checks the head of a request to the listener at `bound`, of a process of `peer`, for a gateway of the user `own`.
pub(super) fn check(
    bound: SocketAddr,
    (peer, own): (PeerUser, u32),
    kind: RequestKind,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(), PageRefusal> {
    // Behind a proxy, the peer is not the browser.
    let is_ours = matches!(peer, PeerUser::Local(Some(uid)) if uid == own || uid == 0);
    if !is_ours || is_forwarded(headers) {
        return Err(PageRefusal::Peer);
    }
    let host = only(headers, &HOST).ok().flatten().filter(|host| names(bound, host)).ok_or(PageRefusal::Host)?;
    // The same for a request target in absolute form.
    if uri.authority().is_some_and(|authority| !authority.as_str().eq_ignore_ascii_case(host)) {
        return Err(PageRefusal::Host);
    }
    let origin = only(headers, &ORIGIN).map_err(|()| PageRefusal::Origin)?;
    let is_own = |origin: &str| origin.strip_prefix("http://").is_some_and(|name| name.eq_ignore_ascii_case(host));
    let site = only(headers, &SEC_FETCH_SITE).map_err(|()| PageRefusal::Origin)?;
    let is_fine = match (kind, origin) {
        (RequestKind::Action, None) => false,
        (_, Some(origin)) => is_own(origin),
        (RequestKind::Opening, None) => true,
        (RequestKind::Reading, None) => site.is_none_or(|site| matches!(site, "same-origin" | "none")),
    };
    is_fine.then_some(()).ok_or(PageRefusal::Origin)
}

/// The value of a header; an error if it is there twice or is not text.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, ()> {
    let mut all = headers.get_all(name).iter();
    match (all.next().map(HeaderValue::to_str), all.next()) {
        (None, _) => Ok(None),
        (Some(Ok(value)), None) => Ok(Some(value)),
        _ => Err(()),
    }
}

/// True if a `Host` is this listener: its port, and `localhost`, a loopback address or the address itself. DNS rebinding
/// cannot change a numeric address, and browsers resolve `localhost` themselves.
fn names(bound: SocketAddr, host: &str) -> bool {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse() == Ok(bound.port());
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, rest)) => (name, rest.strip_prefix(':').or(rest.is_empty().then_some("80"))),
        None => host.split_once(':').map_or((host, Some("80")), |(name, port)| (name, Some(port))),
    };
    let is_address = |ip: IpAddr| ip.to_canonical().is_loopback() || ip == bound.ip();
    port.is_some_and(is_port) && (name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_address))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u32 = 1000;

    fn check_host(bound: &str, host: &str, expected: bool) {
        let bound = bound.parse().expect("an address");
        assert_eq!(names(bound, host), expected, "{bound} {host}");
    }

    #[test]
    fn host_is_this_listener() {
        for ours in ["127.0.0.1:5327", "localhost:5327", "LOCALHOST:5327", "[::1]:5327", "127.0.0.2:5327"] {
            check_host("127.0.0.1:5327", ours, true);
        }
        for foreign in [
            "",
            "localhost",
            "127.0.0.1",
            "127.0.0.1:80",
            "127.0.0.1:",
            "127.0.0.1:+5327",
            "evil.example:5327",
            "localhost.evil.example:5327",
            "127.0.0.1.evil.example:5327",
            "192.0.2.7:5327",
            "[::1]5327",
            "[::1",
            "::1:5327",
            "user@localhost:5327",
            "localhost:5327:5327",
        ] {
            check_host("127.0.0.1:5327", foreign, false);
        }
        check_host("192.0.2.7:5327", "192.0.2.7:5327", true);
        check_host("0.0.0.0:5327", "192.0.2.7:5327", false);
        check_host("127.0.0.1:80", "localhost", true);
        check_host("[::1]:80", "[::1]", true);
    }

    fn check_request(kind: RequestKind, given: &[(&'static str, &str)], expected: Result<(), PageRefusal>) {
        let bound = "127.0.0.1:5327".parse().expect("an address");
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.append(*name, value.parse().expect("a header"));
        }
        let peer = (PeerUser::Local(Some(OWN)), OWN);
        assert_eq!(super::check(bound, peer, kind, &Uri::from_static("/-/"), &headers), expected, "{kind:?} {given:?}");
    }

    #[test]
    fn another_page_is_refused_on_every_route() {
        let host = ("host", "127.0.0.1:5327");
        for kind in [RequestKind::Opening, RequestKind::Reading, RequestKind::Action] {
            check_request(kind, &[host, ("origin", "http://127.0.0.1:5327")], Ok(()));
            for origin in ["http://127.0.0.1:6666", "http://localhost:5327", "https://127.0.0.1:5327", "null", ""] {
                check_request(kind, &[host, ("origin", origin)], Err(PageRefusal::Origin));
            }
            let twice = [host, ("origin", "http://127.0.0.1:5327"), ("origin", "http://evil.example")];
            check_request(kind, &twice, Err(PageRefusal::Origin));
            check_request(kind, &[("host", "evil.example:5327")], Err(PageRefusal::Host));
            check_request(kind, &[host, host], Err(PageRefusal::Host));
            check_request(kind, &[], Err(PageRefusal::Host));
        }
        check_request(RequestKind::Action, &[host], Err(PageRefusal::Origin));
        check_request(RequestKind::Reading, &[host], Ok(()));
        for (site, expected) in [("same-origin", Ok(())), ("same-site", Err(PageRefusal::Origin))] {
            check_request(RequestKind::Reading, &[host, ("sec-fetch-site", site)], expected);
            check_request(RequestKind::Opening, &[host, ("sec-fetch-site", site)], Ok(()));
        }
    }

    #[test]
    fn only_the_own_user_and_root_on_this_machine_are_served() {
        let bound = "127.0.0.1:5327".parse().expect("an address");
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("localhost:5327"));
        for (peer, expected) in [
            (PeerUser::Local(Some(OWN)), Ok(())),
            (PeerUser::Local(Some(0)), Ok(())),
            (PeerUser::Local(Some(1001)), Err(PageRefusal::Peer)),
            (PeerUser::Local(None), Err(PageRefusal::Peer)),
            (PeerUser::Remote, Err(PageRefusal::Peer)),
        ] {
            let found = super::check(bound, (peer, OWN), RequestKind::Reading, &Uri::from_static("/"), &headers);
            assert_eq!(found, expected, "{peer:?}");
        }
        headers.insert("x-forwarded-for", HeaderValue::from_static("192.0.2.1"));
        let peer = (PeerUser::Local(Some(OWN)), OWN);
        let found = super::check(bound, peer, RequestKind::Reading, &Uri::from_static("/"), &headers);
        assert_eq!(found, Err(PageRefusal::Peer), "a proxy on this machine has our user, and its clients may not");
        headers.remove("x-forwarded-for");
        let elsewhere = Uri::from_static("http://evil.example:5327/-/");
        let found = super::check(bound, peer, RequestKind::Reading, &elsewhere, &headers);
        assert_eq!(found, Err(PageRefusal::Host));
    }
}
