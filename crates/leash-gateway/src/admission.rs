//! Decides whether a request may be served: the same checks for both listeners, the gateway's and the control API's.
//! Pure.

use std::net::{IpAddr, SocketAddr};

use hyper::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue, ORIGIN};
use hyper::{HeaderMap, Uri};

use crate::config::{LocalUsers, Secret};
use crate::connection::PeerUser;
use leash_model::{escape, limits};
use leash_protocol::headers;

/// The header for the gateway's own token, so that `Authorization` stays free for the server.
pub(super) const LEASH_AUTHORIZATION: HeaderName = HeaderName::from_static("leash-authorization");

/// Headers on which admission depends. If one came twice, leash and the server behind it could read different values.
const ONCE: [HeaderName; 5] = [HOST, ORIGIN, AUTHORIZATION, LEASH_AUTHORIZATION, headers::SESSION_ID];

/// The rules of a listener for every request.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListenerRules<'a> {
    /// The address that it listens on; `None` for a Unix socket, where `Host` means nothing.
    pub(super) bound: Option<SocketAddr>,
    /// Accepted names in `Host` besides the address itself.
    pub(super) hosts: &'a [String],
    /// Accepted origins besides its own; `None` if no page may use it at all.
    pub(super) origins: Option<&'a [String]>,
    /// The token that callers must send.
    pub(super) token: Option<&'a Secret>,
}

/// The reason that a request is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AdmissionRefusal {
    /// This header came twice.
    Repeated(HeaderName),
    /// `Host` does not name this listener; its value, safe to print.
    Host(String),
    /// The request comes from a page of another origin, or of any origin where no page is served; with the origin.
    Origin(String),
    /// The token is missing or wrong.
    Token,
    /// No token is configured, and the peer is another user of this machine, or its user cannot be found.
    OtherUser(Option<u32>),
}

impl ListenerRules<'_> {
    /// Checks that the head is unambiguous, and that no page of a foreign origin sent it.
    pub(super) fn check_head(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), AdmissionRefusal> {
        if let Some(name) = ONCE.iter().find(|name| headers.get_all(*name).iter().nth(1).is_some()) {
            return Err(AdmissionRefusal::Repeated(name.clone()));
        }
        let Some(bound) = self.bound else { return self.check_origin(None, headers) };
        let known = |host: &str| is_ours(bound.ip(), host) || self.hosts.iter().any(|allowed| same_host(allowed, host));
        let host = headers.get(HOST).map(HeaderValue::as_bytes).unwrap_or_default();
        // The same for a request target in absolute form.
        let names = [Some(host), uri.authority().map(|authority| authority.as_str().as_bytes())];
        for name in names.into_iter().flatten() {
            if !std::str::from_utf8(name).is_ok_and(known) {
                return Err(AdmissionRefusal::Host(said(name)));
            }
        }
        self.check_origin(Some(bound), headers)
    }

    /// Checks that a present `Origin` is ours or allowed; programs send none.
    fn check_origin(&self, bound: Option<SocketAddr>, headers: &HeaderMap) -> Result<(), AdmissionRefusal> {
        let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
        let refused = || AdmissionRefusal::Origin(said(origin.as_bytes()));
        let (Some(bound), Some(allowed), Ok(origin)) = (bound, self.origins, origin.to_str()) else {
            return Err(refused());
        };
        let fine = is_own_origin(bound, self.hosts, origin)
            || allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin));
        fine.then_some(()).ok_or_else(refused)
    }

    /// Checks the caller: by the token if one is configured, otherwise by the user of a local peer.
    pub(super) fn check_caller(
        &self,
        headers: &HeaderMap,
        foreign_peer: Option<ForeignPeer>,
    ) -> Result<(), AdmissionRefusal> {
        match (self.token, foreign_peer) {
            (Some(token), _) => token_header(headers)
                .is_some_and(|given| is_bearer(given, token))
                .then_some(())
                .ok_or(AdmissionRefusal::Token),
            (None, Some(ForeignPeer(uid))) => Err(AdmissionRefusal::OtherUser(uid)),
            (None, None) => Ok(()),
        }
    }
}

/// A header's value as a message shows it.
fn said(value: &[u8]) -> String {
    escape::name(&String::from_utf8_lossy(value), limits::SAID_NAME)
}

/// A peer on this machine that is not known to belong to our own user or to root; its uid, if it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ForeignPeer(pub(super) Option<u32>);

/// Returns the peer if it may belong to another user of this machine.
pub(super) fn foreign_peer(peer: PeerUser, own: u32, users: LocalUsers) -> Option<ForeignPeer> {
    match (peer, users) {
        (_, LocalUsers::Any) | (PeerUser::Remote, _) => None,
        (PeerUser::Local(Some(uid)), LocalUsers::Own) if uid == own || uid == 0 => None,
        (PeerUser::Local(uid), LocalUsers::Own) => Some(ForeignPeer(uid)),
    }
}

/// The header with the gateway's token.
fn token_header(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(LEASH_AUTHORIZATION).or_else(|| headers.get(AUTHORIZATION))
}

/// Removes the gateway's token from a request: no server behind the gateway may see it.
pub(super) fn take_token(headers: &mut HeaderMap) {
    if headers.remove(LEASH_AUTHORIZATION).is_none() {
        headers.remove(AUTHORIZATION);
    }
}

fn is_bearer(given: &HeaderValue, token: &Secret) -> bool {
    let given = given.as_bytes();
    let bearer = given.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer "));
    bearer && equal(&given[7..], token.expose().as_bytes())
}

/// Compares in constant time, so that the time does not reveal the position of a difference.
pub(super) fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// True if an origin is the listener itself: `http`, one of its names and its port. Another port of this machine is
/// another program, and so is another loopback address, unless it listens on all addresses.
fn is_own_origin(bound: SocketAddr, hosts: &[String], origin: &str) -> bool {
    let Some(host) = origin.strip_prefix("http://") else { return false };
    let name = name_of(host);
    let port = host.rsplit_once(':').filter(|_| host != name && !host.ends_with(']'));
    let port = port.map_or(Some(80), |(_, port)| port.parse().ok());
    let is_local_name = name.eq_ignore_ascii_case("localhost") && is_reached_by_loopback(bound.ip());
    let is_address = name.parse::<IpAddr>().is_ok_and(|ip| ip == bound.ip() || bound.ip().is_unspecified());
    port == Some(bound.port()) && (is_local_name || is_address || hosts.iter().any(|allowed| same_host(allowed, host)))
}

fn is_reached_by_loopback(ip: IpAddr) -> bool {
    ip.is_unspecified() || ip.to_canonical().is_loopback()
}

/// True if a `Host` names this listener: loopback, or the address that it is bound to. DNS rebinding cannot change a
/// numeric address.
fn is_ours(bound: IpAddr, host: &str) -> bool {
    let name = name_of(host);
    let ip = name.parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost")
        || ip.is_ok_and(|ip| ip.to_canonical().is_loopback() || ip == bound || bound.is_unspecified())
}

/// A host without its port and brackets; empty if it is malformed.
fn name_of(host: &str) -> &str {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    if let Some((name, rest)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return if rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port) { name } else { "" };
    }
    match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) => name,
        Some(_) => "",
        None => host,
    }
}

/// True if a host is the allowed one. An allowed host with a port matches only that port; without one, any port.
fn same_host(allowed: &str, host: &str) -> bool {
    allowed.eq_ignore_ascii_case(host) || allowed.eq_ignore_ascii_case(name_of(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(given: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.append(*name, value.parse().expect("a header"));
        }
        headers
    }

    fn check(bound: &str, hosts: &[&str], given: &[(&'static str, &str)], expected: Result<(), AdmissionRefusal>) {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let origins = ["https://app.example".to_owned(), "http://localhost:6274".to_owned()];
        let bound = Some(bound.parse().expect("an address"));
        let rules = ListenerRules { bound, hosts: &hosts, origins: Some(&origins), token: None };
        let result = rules.check_head(&Uri::from_static("/x/mcp"), &headers(given));
        assert_eq!(result, expected, "{bound:?} {given:?}");
    }

    fn check_origin(bound: &str, hosts: &[&str], origin: &str, fine: bool) {
        let expected = if fine { Ok(()) } else { Err(AdmissionRefusal::Origin(origin.to_owned())) };
        check(bound, hosts, &[("host", "localhost"), ("origin", origin)], expected);
    }

    #[test]
    fn own_origin_is_scheme_name_and_port() {
        for bound in ["127.0.0.1:5327", "[::1]:5327", "0.0.0.0:5327"] {
            check_origin(bound, &[], "http://localhost:5327", true);
            check_origin(bound, &[], "http://LOCALHOST:5327", true);
            for foreign in [
                "http://localhost",
                "http://localhost:3000",
                "http://localhost:53270",
                "https://localhost:5327",
                "localhost:5327",
                "http://evil.example:5327",
                "http://localhost:5327.evil.example",
                "http://evil.example/localhost:5327",
                "http://localhost:5327, http://evil.example",
                "http://[::1]:5327x",
                "null",
                "",
            ] {
                check_origin(bound, &[], foreign, false);
            }
        }
        check_origin("127.0.0.1:5327", &[], "http://127.0.0.1:5327", true);
        check_origin("127.0.0.1:5327", &[], "http://127.0.0.2:5327", false);
        check_origin("127.0.0.1:5327", &[], "http://[::1]:5327", false);
        check_origin("[::1]:5327", &[], "http://[::1]:5327", true);
        check_origin("[::1]:80", &[], "http://[::1]", true);
        check_origin("127.0.0.1:80", &[], "http://localhost", true);
        check_origin("0.0.0.0:5327", &[], "http://192.0.2.7:5327", true);
        check_origin("192.0.2.7:5327", &[], "http://localhost:5327", false);
        check_origin("192.0.2.7:5327", &["g.example"], "http://g.example:5327", true);
        check_origin("192.0.2.7:5327", &["g.example"], "http://g.example:1", false);
        check_origin("192.0.2.7:5327", &["g.example"], "https://g.example", false);
    }

    #[test]
    fn configured_origins_are_accepted() {
        check_origin("127.0.0.1:5327", &[], "https://app.example", true);
        check_origin("127.0.0.1:5327", &[], "https://APP.example", true);
        check_origin("127.0.0.1:5327", &[], "http://localhost:6274", true);
        check_origin("127.0.0.1:5327", &[], "https://app.example:1", false);
    }

    #[test]
    fn a_repeated_admission_header_is_refused() {
        for name in ["host", "origin", "authorization", "leash-authorization", "mcp-session-id"] {
            let given = [("host", "localhost"), (name, "localhost"), (name, "localhost")];
            let expected = Err(AdmissionRefusal::Repeated(HeaderName::from_static(name)));
            check("127.0.0.1:5327", &[], &given, expected);
        }
        let twice = [("host", "localhost"), ("accept", "a/b"), ("accept", "a/b")];
        check("127.0.0.1:5327", &[], &twice, Ok(()));
    }

    #[test]
    fn host_must_name_the_listener() {
        let bound = "192.0.2.7:5327";
        for ours in ["localhost", "localhost:1", "127.0.0.1:5327", "[::1]", "192.0.2.7:5327", "g.example:9"] {
            check(bound, &["g.example"], &[("host", ours)], Ok(()));
        }
        for foreign in ["", "evil.example", "192.0.2.8", "localhost.evil.example", "[::1]x", "g.example:x"] {
            check(bound, &["g.example"], &[("host", foreign)], Err(AdmissionRefusal::Host(foreign.to_owned())));
        }
        check(bound, &[], &[], Err(AdmissionRefusal::Host(String::new())));
    }

    #[test]
    fn a_listener_without_pages_accepts_no_origin() {
        for bound in [None, Some("127.0.0.1:5327".parse().expect("an address"))] {
            let rules = ListenerRules { bound, hosts: &[], origins: None, token: None };
            let own = headers(&[("host", "localhost:5327"), ("origin", "http://localhost:5327")]);
            let refused = Err(AdmissionRefusal::Origin("http://localhost:5327".to_owned()));
            assert_eq!(rules.check_head(&Uri::from_static("/"), &own), refused);
            assert_eq!(rules.check_head(&Uri::from_static("/"), &headers(&[("host", "localhost")])), Ok(()));
        }
    }

    #[test]
    fn strangers_are_other_users_of_this_machine() {
        for (peer, users, expected) in [
            (PeerUser::Local(Some(1000)), LocalUsers::Own, None),
            (PeerUser::Local(Some(0)), LocalUsers::Own, None),
            (PeerUser::Local(Some(1001)), LocalUsers::Own, Some(ForeignPeer(Some(1001)))),
            (PeerUser::Local(None), LocalUsers::Own, Some(ForeignPeer(None))),
            (PeerUser::Local(Some(1001)), LocalUsers::Any, None),
            (PeerUser::Local(None), LocalUsers::Any, None),
            (PeerUser::Remote, LocalUsers::Own, None),
        ] {
            assert_eq!(foreign_peer(peer, 1000, users), expected, "{peer:?} {users:?}");
        }
    }

    #[test]
    fn a_token_takes_precedence_over_the_user() {
        let token = Secret::new("s3cret");
        let with = ListenerRules { bound: None, hosts: &[], origins: None, token: Some(&token) };
        let without = ListenerRules { token: None, ..with };
        let foreign_peer = Some(ForeignPeer(Some(1)));
        for (name, value, expected) in [
            ("authorization", "Bearer s3cret", Ok(())),
            ("leash-authorization", "bearer s3cret", Ok(())),
            ("authorization", "Bearer s3cre", Err(AdmissionRefusal::Token)),
            ("authorization", "Basic s3cret", Err(AdmissionRefusal::Token)),
            ("x", "Bearer s3cret", Err(AdmissionRefusal::Token)),
        ] {
            for who in [None, foreign_peer] {
                assert_eq!(with.check_caller(&headers(&[(name, value)]), who), expected, "{name}: {value}");
            }
        }
        assert_eq!(without.check_caller(&HeaderMap::new(), None), Ok(()));
        assert_eq!(without.check_caller(&HeaderMap::new(), foreign_peer), Err(AdmissionRefusal::OtherUser(Some(1))));
    }
}
