//! The front: what every request meets before it reaches a server, in this order.

use std::convert::Infallible;
use std::net::IpAddr;
use std::rc::Rc;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, ORIGIN};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, StatusCode, Uri};

use super::budget::Share;
use super::connection::{Connection, Principal};
use super::control::{self, Job, To};
use super::gateway::Gateway;
use super::respond::{self, Answer};
use super::server::Server;
use super::socket::Owed;
use super::{guard, stdio};
use crate::config::{Secret, Settings, Target, Transport};
use crate::limits;
use crate::protocol::envelope::codes;
use crate::protocol::headers;

/// The gateway's own token may be given here, so that `Authorization` stays free for the server.
const LEASH_AUTHORIZATION: HeaderName = HeaderName::from_static("leash-authorization");

/// A request that may be served.
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    /// The whole body; empty unless it is a POST.
    pub(crate) body: Bytes,
    pub(crate) principal: Principal,
    /// Where it came from, if that is the client itself, on this machine; the client may have closed it meanwhile.
    pub(crate) local: Option<Rc<Connection>>,
}

/// Answers a request.
pub(crate) async fn answer(
    gateway: Rc<Gateway>,
    connection: Rc<Connection>,
    request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    match serve(&gateway, &connection, request).await {
        Ok(answer) | Err(answer) => Ok(answer),
    }
}

async fn serve(
    gateway: &Rc<Gateway>,
    connection: &Rc<Connection>,
    request: Request<Incoming>,
) -> Result<Answer, Answer> {
    let settings = gateway.settings();
    // Before anything else: a page in a browser must not even learn which servers there are.
    check_host(&settings, &request)?;
    check_origin(&settings, request.headers())?;
    if let Some(answer) = own_path(gateway, &request).await {
        return Ok(answer);
    }
    let (mut parts, body) = request.into_parts();
    check_token(settings.token.as_ref(), &mut parts.headers)?;
    let Way { server, rest, job } = route(gateway, &parts.uri)?;
    // Taken until the answer is there.
    let mut room = gateway.bodies.share();
    let body = read_body(&settings, &parts, body, &mut room).await?;
    connection.owe(Owed::Answer);
    let socket = connection.client_socket(&gateway.lookup, &parts.headers);
    let local = connection.is_clients_own(&parts.headers).then(|| Rc::clone(connection));
    let principal = gateway.principals.of(&parts.headers, socket.map(|socket| socket.uid));
    let call = Call { method: parts.method, headers: parts.headers, body, principal, local };
    let timing = gateway.metrics.request(&server.bucket, call.body.len());
    let answer = match job {
        None => dispatch(gateway, &server, &rest, call).await,
        Some(job) => {
            let to = To { job, server: Rc::clone(&server) };
            let dispatch = async |call| dispatch(gateway, &server, &rest, call).await;
            // In a box: other requests need no room for it.
            Box::pin(control::serve(gateway, to, call, dispatch)).await
        }
    };
    timing.done(answer.status());
    Ok(answer)
}

/// To the server's own kind.
async fn dispatch(gateway: &Rc<Gateway>, server: &Rc<Server>, rest: &str, call: Call) -> Answer {
    match &server.settings().target {
        Target::Command(_) if rest == "mcp" => stdio::answer(gateway, server, call).await,
        Target::Url(upstream) if upstream.transport == Transport::Sse => {
            Box::pin(guard::answer_sse(gateway, server, rest, call)).await
        }
        Target::Url(_) if rest == "mcp" => guard::answer(gateway, server, call).await,
        _ => respond::no_such_path(),
    }
}

/// What a path names.
struct Way {
    server: Rc<Server>,
    /// What follows the server's own path.
    rest: String,
    /// The job that it is a server of.
    job: Option<Rc<Job>>,
}

/// Where a request goes.
fn route(gateway: &Gateway, uri: &Uri) -> Result<Way, Answer> {
    let path = uri.path().strip_prefix('/').unwrap_or_default();
    // A server may be called `s` all the same: none of its own paths has a job's secret in it.
    if let Some((job, server, rest)) = path.strip_prefix("s/").and_then(|path| gateway.jobs.route(path)) {
        return Ok(Way { server, rest: rest.to_owned(), job: Some(job) });
    }
    let (name, rest) = path.split_once('/').ok_or_else(respond::no_such_path)?;
    let server = gateway.server(name).ok_or_else(respond::no_such_path)?;
    Ok(Way { server, rest: rest.trim_end_matches('/').to_owned(), job: None })
}

/// What leash answers for itself.
async fn own_path(gateway: &Gateway, request: &Request<Incoming>) -> Option<Answer> {
    let answer = match request.uri().path() {
        "/healthz" => respond::text(StatusCode::OK, "ok\n"),
        "/readyz" if gateway.draining.get() => respond::text(StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
        "/readyz" => respond::text(StatusCode::OK, "ready\n"),
        "/metrics" => respond::text(StatusCode::OK, gateway.metrics.render(gateway, &gateway.tree_memory().await)),
        _ => return None,
    };
    let read = matches!(*request.method(), Method::GET | Method::HEAD);
    Some(if read { answer } else { respond::method_not_allowed("GET, HEAD") })
}

/// The name in `Host` must be one of ours: a foreign name that resolves to us is how a page reaches a local server (DNS
/// rebinding).
fn check_host(settings: &Settings, request: &Request<Incoming>) -> Result<(), Answer> {
    knows_host(settings.listen.ip(), &settings.allowed_hosts, request).then_some(()).ok_or_else(|| {
        respond::error(StatusCode::FORBIDDEN, None, codes::SERVER, "Forbidden: this Host is not allowed")
    })
}

/// Whether `Host` names us: one who is bound to this address, and has these other names.
pub(super) fn knows_host(bound: IpAddr, allowed: &[String], request: &Request<Incoming>) -> bool {
    let known = |host: &str| is_ours(bound, host) || allowed.iter().any(|allowed| same_host(allowed, host));
    let mut named = request.headers().get_all(HOST).iter().map(|host| host.to_str().is_ok_and(known));
    // Exactly one, and the same for a target that is written out in full.
    let fine = named.next() == Some(true) && named.next().is_none();
    fine && request.uri().authority().is_none_or(|authority| known(authority.as_str()))
}

/// A present `Origin` must be ours or allowed; programs send none.
fn check_origin(settings: &Settings, headers: &HeaderMap) -> Result<(), Answer> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let host = origin.split_once("://").map_or("", |(_, host)| host);
    let fine = is_loopback(host) || settings.allowed_origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin));
    fine.then_some(()).ok_or_else(|| {
        respond::error(StatusCode::FORBIDDEN, None, codes::SERVER, "Forbidden: this Origin is not allowed")
    })
}

/// Whether a `Host` names this gateway by itself: loopback, or the very address it is bound to. A number can't be rebound.
fn is_ours(bound: IpAddr, host: &str) -> bool {
    is_loopback(host) || name_of(host).parse::<IpAddr>().is_ok_and(|ip| ip == bound || bound.is_unspecified())
}

fn is_loopback(host: &str) -> bool {
    let name = name_of(host);
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// A host without its port and brackets; empty if that is not what it is.
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

/// An allowed host with a port means that port; without one, any.
fn same_host(allowed: &str, host: &str) -> bool {
    allowed.eq_ignore_ascii_case(host) || allowed.eq_ignore_ascii_case(name_of(host))
}

/// The gateway's token, if it wants one. It is taken out of the request: it is none of the server's business.
fn check_token(token: Option<&Secret>, headers: &mut HeaderMap) -> Result<(), Answer> {
    let Some(token) = token else { return Ok(()) };
    let own = headers.remove(LEASH_AUTHORIZATION);
    let given = own.or_else(|| headers.remove(AUTHORIZATION)).ok_or_else(respond::unauthorized)?;
    if is_bearer(&given, token) { Ok(()) } else { Err(respond::unauthorized()) }
}

/// Whether a request shows this token.
pub(super) fn bears(token: &Secret, headers: &HeaderMap) -> bool {
    headers.get(AUTHORIZATION).is_some_and(|given| is_bearer(given, token))
}

fn is_bearer(given: &HeaderValue, token: &Secret) -> bool {
    let given = given.as_bytes();
    let bearer = given.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer "));
    bearer && equal(&given[7..], token.expose().as_bytes())
}

/// Compares without telling by its time where the difference is.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// The body of a POST, bounded.
async fn read_body(settings: &Settings, head: &Parts, body: Incoming, room: &mut Share) -> Result<Bytes, Answer> {
    if head.method != Method::POST {
        return Ok(Bytes::new());
    }
    if !headers::is_json(&head.headers) {
        let text = "Unsupported Media Type: Content-Type must be application/json";
        return Err(respond::error(StatusCode::UNSUPPORTED_MEDIA_TYPE, None, codes::SERVER, text));
    }
    let too_large = || {
        let text = format!("Payload Too Large: at most {} bytes", settings.max_body);
        respond::error(StatusCode::PAYLOAD_TOO_LARGE, None, codes::INVALID_REQUEST, &text)
    };
    let told = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if told.is_some_and(|told| told > settings.max_body as u64) {
        return Err(too_large());
    }
    let Ok(read) = tokio::time::timeout(limits::BODY_READ, collect(body, settings.max_body, room)).await else {
        let text = "Request Timeout: the body did not come";
        return Err(respond::error(StatusCode::REQUEST_TIMEOUT, None, codes::INVALID_REQUEST, text));
    };
    read.map_err(|unread| match unread {
        Unread::TooLarge => too_large(),
        Unread::NoRoom => respond::unavailable("Service Unavailable: too much is being received"),
        // The client left in the middle; nobody reads this.
        Unread::Broken => {
            respond::error(StatusCode::BAD_REQUEST, None, codes::PARSE, "Parse error: the body broke off")
        }
    })
}

/// Why a body was not read to its end.
enum Unread {
    TooLarge,
    /// Others take all that there is.
    NoRoom,
    Broken,
}

async fn collect(mut body: Incoming, most: usize, room: &mut Share) -> Result<Bytes, Unread> {
    // Most bodies come in one piece, which is not copied.
    let (mut only, mut joined, mut length) = (Bytes::new(), Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(|_| Unread::Broken)?.into_data() else { continue };
        length += piece.len();
        if length > most {
            return Err(Unread::TooLarge);
        }
        if !room.take(piece.len()) {
            return Err(Unread::NoRoom);
        }
        if length == piece.len() {
            only = piece;
            continue;
        }
        joined.extend_from_slice(&std::mem::take(&mut only));
        joined.extend_from_slice(&piece);
    }
    Ok(if joined.is_empty() { only } else { joined.into() })
}
