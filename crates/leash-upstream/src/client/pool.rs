//! A pool of connections to upstreams. Each connection carries one request at a time.
//!
//! hyper-util's client does the same for any number of threads, but that was half of the cost of a request here.

use std::cell::{Cell, RefCell};
use std::{collections::HashMap, rc::Rc};

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_LENGTH, HOST, HeaderValue, TRANSFER_ENCODING};
use hyper::http::uri::{Authority, Scheme};
use hyper::{Request, Response, StatusCode, Uri};

use super::{Connector, UpstreamError, broken};
use crate::heap::HeapTrimmer;
use leash_model::{clock::Moment, limits};
use leash_protocol::headers;

/// Sends requests on idle connections or on new ones. Cheap to clone; clones share the connections.
pub struct ConnectionPool<B>(Rc<PoolState<B>>);

impl<B> Clone for ConnectionPool<B> {
    fn clone(&self) -> ConnectionPool<B> {
        ConnectionPool(Rc::clone(&self.0))
    }
}

struct PoolState<B> {
    connector: Connector,
    hosts: RefCell<HashMap<Origin, PooledHost<B>>>,
    settings: PoolSettings,
    /// A task that closes old idle connections is running.
    cleaner_runs: Cell<bool>,
}

type Origin = (Scheme, Authority);

/// A host with idle connections.
struct PooledHost<B> {
    /// The value of `Host` in requests to it.
    name: HeaderValue,
    /// Its idle connections. The last one in the list was used last.
    idle: Vec<IdleConnection<B>>,
}

struct IdleConnection<B> {
    connection: SendRequest<B>,
    since: Moment,
}

/// The settings for idle connections.
#[derive(Clone, Debug)]
pub struct PoolSettings {
    /// The maximum number of idle connections per host.
    pub most: usize,
    /// True if a timer closes old connections. Otherwise they are closed when they would be used.
    pub timed: bool,
    /// Counts all connections, idle or not: the end of a thousand sessions opens a thousand connections at once.
    pub trimmer: HeapTrimmer,
}

impl<B> ConnectionPool<B>
where
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// An empty pool.
    pub fn new(connector: Connector, settings: PoolSettings) -> ConnectionPool<B> {
        ConnectionPool(Rc::new(PoolState {
            connector,
            hosts: RefCell::default(),
            settings,
            cleaner_runs: Cell::new(false),
        }))
    }

    /// Sends a request and returns the head of the response. If the server closed an idle connection before the request
    /// was begun, sends it on another connection.
    pub async fn send(&self, mut request: Request<B>) -> Result<Response<Incoming>, UpstreamError> {
        let uri = request.uri().clone();
        let origin = origin(&uri)?;
        *request.uri_mut() = uri.path_and_query().cloned().map(Uri::from).unwrap_or_default();
        loop {
            let (mut connection, name, again) = match self.0.take(&origin) {
                Some((kept, name)) => (kept, name, true),
                None => (self.connect(&uri).await?, host(&uri)?, false),
            };
            request.headers_mut().insert(HOST, name.clone());
            match connection.try_send_request(request).await {
                Ok(answer) => {
                    // Drops the connection, because the start of the next response on it is uncertain.
                    if let Some(what) = unusable(&answer) {
                        let session = headers::opened_session(answer.headers()).map(str::to_owned);
                        return Err(UpstreamError::Unusable { what, session });
                    }
                    self.put((origin, name), connection, &answer);
                    return Ok(answer);
                }
                Err(mut error) => match error.take_message() {
                    Some(unsent) if again => request = unsent,
                    _ => return Err(broken(&error.into_error())),
                },
            }
        }
    }

    /// Opens a connection to see if that works. Keeps it only if the host has no other idle one: thousands of checks
    /// would leave as many connections.
    pub(crate) async fn reach(&self, uri: &Uri) -> Result<(), UpstreamError> {
        let origin = origin(uri)?;
        let connection = self.connect(uri).await?;
        if self.0.hosts.borrow().get(&origin).is_none_or(|host| host.idle.is_empty()) {
            self.keep((origin, host(uri)?), connection);
        }
        Ok(())
    }

    async fn connect(&self, uri: &Uri) -> Result<SendRequest<B>, UpstreamError> {
        let stream = self.0.connector.connect(uri.clone()).await?;
        let handshake = http1::Builder::new().max_headers(limits::HEADERS).handshake(stream).await;
        let (sender, connection) = handshake.map_err(|error| broken(&error))?;
        let counted = self.0.settings.trimmer.count();
        tokio::task::spawn_local(async move {
            // A request that waits for its response gets the error.
            let _ = connection.await;
            drop(counted);
        });
        Ok(sender)
    }

    /// Keeps a connection for the next request, as soon as this response is read.
    fn put(&self, host: (Origin, HeaderValue), mut connection: SendRequest<B>, answer: &Response<Incoming>) {
        let short = answer.body().size_hint().exact().is_some_and(|length| length <= limits::SHORT_ANSWER);
        if short || connection.is_ready() {
            // `take` checks it again before it is used.
            return self.keep(host, connection);
        }
        let pool = self.clone();
        tokio::task::spawn_local(async move {
            if connection.ready().await.is_ok() {
                pool.keep(host, connection);
            }
        });
    }

    fn keep(&self, (origin, name): (Origin, HeaderValue), connection: SendRequest<B>) {
        let mut hosts = self.0.hosts.borrow_mut();
        let idle = &mut hosts.entry(origin).or_insert_with(|| PooledHost { name, idle: Vec::new() }).idle;
        idle.push(IdleConnection { connection, since: Moment::on_runtime() });
        if idle.len() > self.0.settings.most {
            idle.remove(0);
        }
        if self.0.settings.timed && !self.0.cleaner_runs.replace(true) {
            let shared = Rc::clone(&self.0);
            tokio::task::spawn_local(async move {
                while shared.close_old() {
                    tokio::time::sleep_until(tokio::time::Instant::now() + limits::POOL_IDLE / 2).await;
                }
                shared.cleaner_runs.set(false);
            });
        }
    }
}

impl<B> PoolState<B> {
    /// Takes the most recently used connection that is ready. Returns it with the value of `Host`.
    fn take(&self, origin: &Origin) -> Option<(SendRequest<B>, HeaderValue)> {
        let mut hosts = self.hosts.borrow_mut();
        let (PooledHost { name, idle }, now) = (hosts.get_mut(origin)?, Moment::on_runtime());
        // The first connection is the oldest.
        if idle.first().is_some_and(|first| !first.is_usable(now)) {
            idle.retain(|one| one.is_usable(now));
        }
        let ready = idle.iter().rposition(|one| one.connection.is_ready())?;
        Some((idle.remove(ready).connection, name.clone()))
    }

    /// Drops connections that are closed or too old. Returns true if any is left.
    fn close_old(&self) -> bool {
        let now = Moment::on_runtime();
        let mut hosts = self.hosts.borrow_mut();
        hosts.retain(|_, host| {
            host.idle.retain(|one| one.is_usable(now));
            !host.idle.is_empty()
        });
        hosts.shrink_to_fit();
        !hosts.is_empty()
    }
}

impl<B> IdleConnection<B> {
    fn is_usable(&self, now: Moment) -> bool {
        !self.connection.is_closed() && now.since(self.since) < limits::POOL_IDLE
    }
}

/// Returns the reason why a response cannot be passed on: its length is ambiguous, or it starts another protocol.
fn unusable<B>(answer: &Response<B>) -> Option<&'static str> {
    let headers = answer.headers();
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Some("it is 101 Switching Protocols, which no client asked for");
    }
    (headers.contains_key(CONTENT_LENGTH) && headers.contains_key(TRANSFER_ENCODING))
        .then_some("it has both Content-Length and Transfer-Encoding")
}

/// Returns the scheme, host and port of an address.
fn origin(uri: &Uri) -> Result<Origin, UpstreamError> {
    let origin = uri.scheme().cloned().zip(uri.authority().cloned());
    origin.ok_or_else(|| UpstreamError::Unreachable("the address has no host".to_owned()))
}

/// Returns the value of `Host`, with the port only if it is not the default one.
fn host(uri: &Uri) -> Result<HeaderValue, UpstreamError> {
    let usual = if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    let name = uri.host().unwrap_or_default();
    let value = match uri.port_u16().filter(|port| *port != usual) {
        Some(port) => HeaderValue::from_maybe_shared(Bytes::from(format!("{name}:{port}"))),
        None => HeaderValue::from_str(name),
    };
    value.map_err(|error| UpstreamError::Unreachable(error.to_string()))
}
