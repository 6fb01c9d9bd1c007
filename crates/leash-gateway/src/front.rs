//! The front: the steps of every request before it reaches a server, in this order.

use std::{convert::Infallible, rc::Rc};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::header::{ACCEPT, CONTENT_LENGTH, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri, body::Incoming, http::request::Parts};

use crate::admission::{self, ListenerRules};
use crate::budget::{Bounds, BudgetClient, LimitReached, Share};
use crate::config::{self, ServerTarget, Settings};
use crate::connection::{ClientConnection, OwedResponse};
use crate::control::{self, CallTarget, Job, Jobs};
use crate::page::{self, PageCaller};
use crate::respond::{self, Answer};
use crate::{call::Call, guard, metrics_page, state::gateway::Gateway, state::server::Server, stdio};
use leash_model::{escape, limits};
use leash_protocol::{envelope::codes, headers};
use leash_upstream::address::HttpTransport;

/// Answers a request.
pub(crate) async fn answer(
    jobs: Rc<Jobs>,
    connection: Rc<ClientConnection>,
    request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    match serve(&jobs, &connection, request).await {
        Ok(answer) | Err(answer) => Ok(answer),
    }
}

async fn serve(
    jobs: &Rc<Jobs>,
    connection: &Rc<ClientConnection>,
    request: Request<Incoming>,
) -> Result<Answer, Answer> {
    let gateway = &jobs.gateway;
    let settings = gateway.settings();
    let bound = gateway.address.get().unwrap_or(settings.listen);
    if let Some(page) = jobs.page().filter(|_| is_for_page(&request)) {
        // The page has stricter rules of its own.
        let caller = PageCaller::Tcp { bound, peer: connection.peer(&gateway.lookup) };
        connection.owe(OwedResponse::Answer);
        return Ok(Box::pin(page.answer(caller, request)).await);
    }
    let bound = Some(bound);
    let (hosts, origins) = (&settings.allowed_hosts, Some(&*settings.allowed_origins));
    let rules = ListenerRules { bound, hosts, origins, token: settings.token.as_ref() };
    // This check comes first: a page in a browser must not learn which servers exist.
    rules.check_head(request.uri(), request.headers()).map_err(|refusal| respond::refused(&refusal))?;
    let peer = connection.peer(&gateway.lookup);
    let foreign_peer = admission::foreign_peer(peer, rustix::process::geteuid().as_raw(), settings.local_users);
    if let Some(page) = OwnPage::at(request.uri().path()) {
        // Health probes run as any user, and learn nothing. The metrics name servers: other users of this machine need
        // the token.
        if page == OwnPage::Metrics && foreign_peer.is_some() {
            rules.check_caller(request.headers(), foreign_peer).map_err(|refusal| respond::refused(&refusal))?;
        }
        return Ok(page.answer(jobs, request.method()).await);
    }
    let (mut parts, body) = request.into_parts();
    rules.check_caller(&parts.headers, foreign_peer).map_err(|refusal| respond::refused(&refusal))?;
    if rules.token.is_some() {
        admission::take_token(&mut parts.headers);
    }
    let RequestTarget { server, rest, job } = route(jobs, &settings, &parts.uri)?;
    let local = connection.is_clients_own(&parts.headers).then(|| Rc::clone(connection));
    let principal = gateway.principals.of(&parts.headers, peer.uid());
    let client = BudgetClient::of(principal, connection.peer.ip());
    // Held until the answer begins.
    let mut room = gateway.bodies.share(client, Bounds::of_bodies(settings.max_body));
    let is_read = parts.method == Method::POST;
    let body = read_body(&settings, &parts, body, &mut room).await?;
    if is_read {
        connection.request_read(true);
    }
    connection.owe(OwedResponse::Answer);
    let (method, headers, peer) = (parts.method, parts.headers, connection.peer);
    let call = Call { method, headers, body, principal, peer, client, local };
    let timing = gateway.metrics.request(&server.bucket, call.body.len());
    let answer = match job {
        None => dispatch(gateway, &server, &rest, call).await,
        Some(job) => {
            let to = CallTarget { job, server: Rc::clone(&server) };
            let dispatch = async |call| dispatch(gateway, &server, &rest, call).await;
            // Boxed, so that this large future does not enlarge those of other requests.
            Box::pin(control::serve(gateway, to, call, dispatch)).await
        }
    };
    timing.done(answer.status());
    Ok(answer)
}

/// True if a request is one of the page. At `/`, other programs than browsers learn the names of the servers.
fn is_for_page(request: &Request<Incoming>) -> bool {
    let is_browser = || request.headers().get_all(ACCEPT).iter().any(|value| contains(value, "text/html"));
    page::is_path(request.uri().path()) && (request.uri().path() != "/" || is_browser())
}

fn contains(value: &HeaderValue, word: &str) -> bool {
    value.to_str().is_ok_and(|value| value.contains(word))
}

/// Passes a call to the handler for the server's kind.
async fn dispatch(gateway: &Rc<Gateway>, server: &Rc<Server>, rest: &str, call: Call) -> Answer {
    match &server.settings().target {
        ServerTarget::Command(_) if rest == "mcp" => stdio::answer(gateway, server, call).await,
        ServerTarget::Url(upstream) if upstream.transport == HttpTransport::Sse => {
            Box::pin(guard::answer_sse(gateway, server, rest, call)).await
        }
        ServerTarget::Url(_) if rest == "mcp" => guard::answer(gateway, server, call).await,
        _ => respond::no_such_path(&format!("the server `{0}` is at /{0}/mcp", server.path)),
    }
}

/// The target of a path.
struct RequestTarget {
    server: Rc<Server>,
    /// The rest of the path after the server's own.
    rest: String,
    /// The job that the server belongs to.
    job: Option<Rc<Job>>,
}

/// Finds the target of a request.
fn route(jobs: &Jobs, settings: &Settings, uri: &Uri) -> Result<RequestTarget, Answer> {
    let path = uri.path().strip_prefix('/').unwrap_or_default();
    // A configured server may still be called `s`: none of its paths contains a job's secret.
    if let Some((job, server, rest)) = path.strip_prefix("s/").and_then(|path| jobs.route(path)) {
        return Ok(RequestTarget { server, rest: rest.to_owned(), job: Some(job) });
    }
    let (name, rest) = path.split_once('/').unwrap_or((path, ""));
    let server = jobs.gateway.server(name);
    if let Some(mistake) = settings.unavailable.get(name).and_then(|mistakes| mistakes.first())
        && !server.as_ref().is_some_and(|server| is_startable(server))
    {
        return Err(respond::unavailable(&format!("Service Unavailable: {}", mistake.what)));
    }
    let server = server.ok_or_else(|| respond::no_such_path(&no_such_server(&jobs.gateway, name)))?;
    Ok(RequestTarget { server, rest: rest.trim_end_matches('/').to_owned(), job: None })
}

/// The answer to a path of an unknown server. The caller was admitted, so it may know the names of the servers.
fn no_such_server(gateway: &Gateway, name: &str) -> String {
    let servers = gateway.servers.borrow();
    let mut names: Vec<&str> = servers.keys().map(|name| &**name).collect();
    names.sort_unstable();
    let near = config::did_you_mean(name, &names).map_or_else(String::new, |near| format!("; {near}"));
    let shown = names.iter().take(limits::NAMED_SERVERS).copied().collect::<Vec<_>>().join(", ");
    let more = match names.len().saturating_sub(limits::NAMED_SERVERS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let all =
        if names.is_empty() { "no server is configured".to_owned() } else { format!("leash serves {shown}{more}") };
    let unknown = match name {
        "" => "the path names no server".to_owned(),
        name => format!("there is no server `{}`", escape::name(name, limits::SAID_NAME)),
    };
    format!("{unknown}{near}; {all} (at /NAME/mcp)")
}

/// True if the program of a server that was missing when the configuration was read exists now.
fn is_startable(server: &Server) -> bool {
    config::is_startable(&server.settings().target, std::env::var_os("PATH").as_deref())
}

/// A page of leash itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnPage {
    Health,
    Ready,
    Metrics,
}

impl OwnPage {
    fn at(path: &str) -> Option<OwnPage> {
        match path {
            "/healthz" => Some(OwnPage::Health),
            "/readyz" => Some(OwnPage::Ready),
            "/metrics" => Some(OwnPage::Metrics),
            _ => None,
        }
    }

    async fn answer(self, jobs: &Jobs, method: &Method) -> Answer {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return respond::method_not_allowed("GET, HEAD");
        }
        match self {
            OwnPage::Health => respond::text(StatusCode::OK, "ok\n"),
            OwnPage::Ready if jobs.gateway.draining.get() => {
                respond::text(StatusCode::SERVICE_UNAVAILABLE, "draining\n")
            }
            OwnPage::Ready => respond::text(StatusCode::OK, "ready\n"),
            OwnPage::Metrics => {
                let memory = jobs.tree_memory().await;
                respond::text(StatusCode::OK, metrics_page::render(jobs, &memory))
            }
        }
    }
}

/// Reads the body of a POST, up to the limit.
async fn read_body(settings: &Settings, head: &Parts, body: Incoming, room: &mut Share) -> Result<Bytes, Answer> {
    if head.method != Method::POST {
        return Ok(Bytes::new());
    }
    if !headers::is_json(&head.headers) {
        let text = "Unsupported Media Type: Content-Type must be application/json";
        return Err(respond::error(StatusCode::UNSUPPORTED_MEDIA_TYPE, None, codes::SERVER, text));
    }
    let too_large = || {
        let text = format!("Payload Too Large: at most {} bytes; `maxBody` sets the limit", settings.max_body);
        respond::error(StatusCode::PAYLOAD_TOO_LARGE, None, codes::INVALID_REQUEST, &text)
    };
    let told = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if told.is_some_and(|told| told > settings.max_body as u64) {
        return Err(too_large());
    }
    let Ok(read) = tokio::time::timeout(limits::BODY_READ, collect(body, settings.max_body, room)).await else {
        let text = "Request Timeout: the body did not arrive";
        return Err(respond::error(StatusCode::REQUEST_TIMEOUT, None, codes::INVALID_REQUEST, text));
    };
    read.map_err(|unread| match unread {
        BodyReadError::TooLarge => too_large(),
        BodyReadError::NoRoom(LimitReached::All) => {
            respond::unavailable("Service Unavailable: the bodies being received take too much memory")
        }
        BodyReadError::NoRoom(LimitReached::Client) => {
            respond::unavailable("Service Unavailable: the bodies being received from this client take too much memory")
        }
        // The client disconnected in the middle of the body, so it does not see this answer.
        BodyReadError::Broken => {
            respond::error(StatusCode::BAD_REQUEST, None, codes::PARSE, "Parse error: the body broke off")
        }
    })
}

/// The reason that a body was not read to its end.
enum BodyReadError {
    TooLarge,
    /// Other bodies use the memory for bodies up to its limit.
    NoRoom(LimitReached),
    Broken,
}

async fn collect(mut body: Incoming, most: usize, room: &mut Share) -> Result<Bytes, BodyReadError> {
    // Most bodies come in one piece, which is not copied.
    let (mut only, mut joined, mut length) = (Bytes::new(), Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(|_| BodyReadError::Broken)?.into_data() else { continue };
        length += piece.len();
        if length > most {
            return Err(BodyReadError::TooLarge);
        }
        room.take(piece.len()).map_err(BodyReadError::NoRoom)?;
        if length == piece.len() {
            only = piece;
            continue;
        }
        joined.extend_from_slice(&std::mem::take(&mut only));
        joined.extend_from_slice(&piece);
    }
    Ok(if joined.is_empty() { only } else { joined.into() })
}
