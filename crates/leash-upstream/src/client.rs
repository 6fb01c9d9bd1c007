//! The HTTP client towards upstream servers: HTTP/1.1, pooled, TLS when the first `https` address is used.

mod pool;

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::task::{Context, Poll};
use std::{fmt, io, pin::Pin, sync::Arc};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, StatusCode, Uri, body::Incoming, header::LOCATION, http::uri::Scheme};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, MaybeHttpsStream};
use hyper_util::{client::legacy::connect::HttpConnector, client::legacy::connect::dns::Name, rt::TokioIo};
use rustls::ClientConfig;
use thiserror::Error;
use tokio::{net::TcpStream, sync::OnceCell};
use tower_service::Service;

use crate::{deadline::Deadline, heap::HeapTrimmer};
use leash_model::limits;
use leash_tree::blocking;

pub use pool::{ConnectionPool, PoolSettings};

/// The reason why an upstream did not respond. No text names the address: the caller knows it, and it may hold a
/// secret.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum UpstreamError {
    /// No program listens at the address.
    #[error("connection refused")]
    Refused,
    /// The name has no address.
    #[error("the name cannot be resolved: {0}")]
    Dns(String),
    /// The address is `https`, and the server answered with something that is not TLS.
    #[error("the server does not speak TLS")]
    NotTls,
    /// The TLS handshake failed, or there are no root certificates.
    #[error("no secure connection: {0}")]
    Tls(String),
    /// The connection was not established in time.
    #[error("no connection within {} s", limits::CONNECT.as_secs())]
    Timeout,
    /// The connection failed for another reason.
    #[error("no connection: {0}")]
    Unreachable(String),
    /// The response cannot be passed on.
    #[error("the answer cannot be used: {what}")]
    Unusable {
        /// The problem with the response.
        what: &'static str,
        /// The id of the session that the response opened anyway.
        session: Option<String>,
    },
    /// The answer is not HTTP.
    #[error("the server answered with something that is not HTTP: {0}")]
    NotHttp(String),
    /// The connection broke before the response.
    #[error("the connection broke before the answer: {0}")]
    Broken(String),
}

impl UpstreamError {
    /// The failure with the server's address or name, which the caller may show.
    pub fn at(&self, server: &str) -> String {
        match self {
            UpstreamError::Unusable { .. } | UpstreamError::NotHttp(_) | UpstreamError::Broken(_) => {
                format!("{server}: {self}")
            }
            _ => format!("cannot reach {server}: {self}"),
        }
    }

    /// The same with the one thing to do.
    pub fn explain(&self, server: &str) -> String {
        format!("{}; {}", self.at(server), self.hint())
    }

    /// The one thing to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            UpstreamError::Refused => "is the server running?",
            UpstreamError::Dns(_) => "check the host name in the URL",
            UpstreamError::NotTls => "did you mean http:// instead of https://?",
            UpstreamError::Tls(_) => "check the server's certificate; SSL_CERT_FILE names the certificates to trust",
            UpstreamError::Timeout => "check the host and the port of the URL; a firewall may drop the connection",
            UpstreamError::Unreachable(_) => "check the host and the port of the URL",
            UpstreamError::NotHttp(_) => "check the port of the URL; a server that speaks TLS needs https://",
            UpstreamError::Unusable { .. } => "check that the URL is that of an MCP server",
            UpstreamError::Broken(_) => "the request may have been carried out; look at the server's log",
        }
    }
}

/// Sends requests. Cheap to clone; clones share the pool.
#[derive(Clone)]
pub struct UpstreamClient {
    http: ConnectionPool<Full<Bytes>>,
    /// The deadline for every DELETE.
    pub deadline: Deadline,
}

impl fmt::Debug for UpstreamClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Default for UpstreamClient {
    fn default() -> UpstreamClient {
        UpstreamClient::new()
    }
}

impl UpstreamClient {
    /// Creates a client. It reads nothing and cannot fail before it is used.
    pub fn new() -> UpstreamClient {
        UpstreamClient::counted_by(HeapTrimmer::default())
    }

    /// Creates a client whose connections are counted in `trimmer`.
    pub fn counted_by(trimmer: HeapTrimmer) -> UpstreamClient {
        UpstreamClient::with(OnceCell::new(), trimmer)
    }

    fn with(tls: OnceCell<Arc<ClientConfig>>, trimmer: HeapTrimmer) -> UpstreamClient {
        let http = ConnectionPool::new(
            Connector::with_tls(tls),
            PoolSettings { most: limits::POOL_MOST, timed: true, trimmer },
        );
        UpstreamClient { http, deadline: Deadline::default() }
    }

    /// Opens a connection to see if the server can be reached. Keeps it for the first request.
    pub async fn reach(&self, uri: &Uri) -> Result<(), UpstreamError> {
        self.http.reach(uri).await
    }

    /// Sends a request and returns the head of the response; the body has no time limit. Follows a redirect that keeps
    /// the method and the origin: if the client followed it, it would bypass leash.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, UpstreamError> {
        let to = |uri: Uri| {
            let mut request = request.clone();
            *request.uri_mut() = uri;
            request
        };
        self.send_to(request.uri().clone(), to).await
    }

    /// Like `send`, but builds the request for each address. Most requests are sent once and need no copy.
    pub async fn send_to(
        &self,
        mut uri: Uri,
        request: impl Fn(Uri) -> Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let mut answer = self.http.send(request(uri.clone())).await?;
        for _ in 0..limits::REDIRECTS {
            let Some(next) = redirect(&uri, &answer) else { break };
            answer = self.http.send(request(next.clone())).await?;
            uri = next;
        }
        Ok(answer)
    }
}

/// Returns the target of a redirect, if it keeps the method (307, 308) and stays at the same origin.
pub fn redirect<B>(from: &Uri, answer: &Response<B>) -> Option<Uri> {
    if !matches!(answer.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT) {
        return None;
    }
    resolve(from, answer.headers().get(LOCATION)?.to_str().ok()?)
}

/// Resolves a reference against `base`. `None` if it leads to another origin or is not valid.
pub fn resolve(base: &Uri, reference: &str) -> Option<Uri> {
    let origin = || Some(format!("{}://{}", base.scheme()?, base.authority()?));
    let directory = || base.path().rsplit_once('/').map_or("", |(directory, _)| directory);
    let first = reference.split(['/', '?', '#']).next().unwrap_or_default();
    let absolute = match reference {
        // `//` may name another host. Servers do not use these forms.
        _ if reference.is_empty() || reference.starts_with("//") || reference.contains("/../") => return None,
        _ if first.contains(':') => reference.to_owned(),
        _ if reference.starts_with('/') => origin()? + reference,
        _ if reference.starts_with('?') => origin()? + base.path() + reference,
        _ => format!("{}{}/{}", origin()?, directory(), reference.strip_prefix("./").unwrap_or(reference)),
    };
    let target: Uri = absolute.parse().ok()?;
    same_origin(base, &target).then_some(target)
}

/// True if two addresses have the same scheme, host and port.
pub(crate) fn same_origin(a: &Uri, b: &Uri) -> bool {
    let port =
        |uri: &Uri| uri.port_u16().or_else(|| (uri.scheme() == Some(&Scheme::HTTPS)).then_some(443)).unwrap_or(80);
    let host = |uri: &Uri| uri.host().map(str::to_ascii_lowercase);
    a.scheme() == b.scheme() && host(a) == host(b) && port(a) == port(b)
}

/// Opens connections. It sets TLS up for the first `https` address, because reading the root certificates takes 10 ms
/// and megabytes.
pub struct Connector {
    tcp: HttpConnector<NameResolver>,
    tls: OnceCell<Arc<ClientConfig>>,
}

/// A connection.
type Connected = MaybeHttpsStream<TokioIo<TcpStream>>;

impl Default for Connector {
    /// A connector that uses the platform's root certificates.
    fn default() -> Connector {
        Connector::with_tls(OnceCell::new())
    }
}

impl Connector {
    fn with_tls(tls: OnceCell<Arc<ClientConfig>>) -> Connector {
        let mut tcp = HttpConnector::new_with_resolver(NameResolver);
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // Without keepalive, an upstream that vanished without closing the connection would hold a stream forever.
        tcp.set_keepalive(Some(limits::TCP_PROBE));
        tcp.set_keepalive_interval(Some(limits::TCP_PROBE));
        tcp.set_keepalive_retries(Some(limits::TCP_PROBES));
        tcp.set_tcp_user_timeout(Some(limits::TCP_UNACKNOWLEDGED));
        Connector { tcp, tls }
    }

    async fn connect(&self, uri: Uri) -> Result<Connected, UpstreamError> {
        let connecting = Box::pin(tokio::time::timeout(limits::CONNECT, self.try_to_connect(uri)));
        connecting.await.unwrap_or(Err(UpstreamError::Timeout))
    }

    async fn try_to_connect(&self, uri: Uri) -> Result<Connected, UpstreamError> {
        let mut tcp = self.tcp.clone();
        if uri.scheme() != Some(&Scheme::HTTPS) {
            let stream = tcp.call(uri).await.map_err(|error| connection_error(&error))?;
            return Ok(MaybeHttpsStream::Http(stream));
        }
        let config = Arc::clone(self.tls.get_or_try_init(read_roots).await?);
        HttpsConnector::from((tcp, config)).call(uri).await.map_err(|error| connection_error(&*error))
    }
}

/// Resolves names on the blocking pool. If no thread is available it fails, because a lookup on the gateway's one
/// thread would block all clients.
#[derive(Clone)]
struct NameResolver;

impl Service<Name> for NameResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let answer = blocking::attempt(move || (name.as_str(), 0).to_socket_addrs());
        Box::pin(async move {
            let answer = answer.ok_or_else(|| io::Error::other("no thread is available to resolve the name"))?;
            answer.await.map_err(io::Error::other)?
        })
    }
}

/// Reads the platform's root certificates (or `SSL_CERT_FILE` and `SSL_CERT_DIR`) on the blocking pool, so that the
/// gateway's one thread can serve other clients.
async fn read_roots() -> Result<Arc<ClientConfig>, UpstreamError> {
    let read = || {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = versions.map_err(|error| error.to_string())?;
        let roots = builder.with_native_roots().map_err(|error| error.to_string())?;
        let mut config = roots.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    };
    let read = blocking::spawn(read).await;
    read.unwrap_or_else(|error| Err(error.to_string())).map_err(UpstreamError::Tls)
}

/// Finds out why there is no connection.
fn connection_error(error: &(dyn std::error::Error + 'static)) -> UpstreamError {
    let (mut refused, mut timed_out) = (false, false);
    for cause in causes(error) {
        // The resolver's error has no type of its own, only this text.
        if cause.to_string().starts_with("dns error") {
            return UpstreamError::Dns(root_cause(cause));
        }
        if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
            return tls_error(tls);
        }
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            // The `source` of an `io::Error` skips the error that it wraps.
            if let Some(tls) = io.get_ref().and_then(tls_inside) {
                return tls_error(tls);
            }
            refused |= io.kind() == io::ErrorKind::ConnectionRefused;
            timed_out |= io.kind() == io::ErrorKind::TimedOut;
        }
    }
    match (refused, timed_out) {
        (true, _) => UpstreamError::Refused,
        (_, true) => UpstreamError::Timeout,
        _ => UpstreamError::Unreachable(root_cause(error)),
    }
}

/// Finds the TLS error inside layers of `io::Error`.
fn tls_inside<'e>(error: &'e (dyn std::error::Error + Send + Sync + 'static)) -> Option<&'e rustls::Error> {
    error.downcast_ref().or_else(|| error.downcast_ref::<io::Error>()?.get_ref().and_then(tls_inside))
}

/// The failure of a request on an open connection.
fn broken(error: &hyper::Error) -> UpstreamError {
    let cause = root_cause(error);
    if error.is_parse() { UpstreamError::NotHttp(cause) } else { UpstreamError::Broken(cause) }
}

fn tls_error(error: &rustls::Error) -> UpstreamError {
    match error {
        // The first byte is no TLS record: the answer of a server that expects plain HTTP.
        rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType) => UpstreamError::NotTls,
        other => UpstreamError::Tls(other.to_string()),
    }
}

/// Returns the innermost cause of an error. The layers above only say that there was an error.
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}

fn causes<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'e (dyn std::error::Error + 'static)| (*error).source())
}

#[cfg(test)]
mod tests;
