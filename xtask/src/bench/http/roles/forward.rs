//! The floor for HTTP to HTTP: passes each request on and its answer back, without any state.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderValue, TRANSFER_ENCODING};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

use super::body::Answer;
use super::server;

struct Upstream {
    address: SocketAddr,
    host: HeaderValue,
    /// Persistent connections. The ready ones can be used.
    idle: RefCell<Vec<SendRequest<Full<Bytes>>>>,
    drivers: TaskTracker,
}

pub(super) async fn run(listener: TcpListener, address: SocketAddr) -> io::Result<()> {
    let host = HeaderValue::try_from(address.to_string()).map_err(io::Error::other)?;
    let upstream = Rc::new(Upstream { address, host, idle: RefCell::default(), drivers: TaskTracker::new() });
    server::serve(listener, move |request| forward(Rc::clone(&upstream), request)).await
}

async fn forward(upstream: Rc<Upstream>, request: Request<Incoming>) -> io::Result<Response<Answer>> {
    let (mut head, body) = request.into_parts();
    for header in [CONNECTION, TRANSFER_ENCODING, CONTENT_LENGTH] {
        head.headers.remove(header);
    }
    head.headers.insert(HOST, upstream.host.clone());
    let message = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let is_stream = head.method == Method::GET;

    let mut connection = upstream.connection().await?;
    let sent = connection.send_request(Request::from_parts(head, Full::new(message))).await;
    let (mut head, body) = sent.map_err(io::Error::other)?.into_parts();
    for header in [CONNECTION, TRANSFER_ENCODING] {
        head.headers.remove(header);
    }
    // A body with a length is read at once; one without may never end.
    let whole = match body.size_hint().exact() {
        Some(_) => Answer::Whole(Some(body.collect().await.map_err(io::Error::other)?.to_bytes())),
        None => Answer::Passing(body),
    };
    if !is_stream {
        upstream.idle.borrow_mut().push(connection);
    }
    Ok(Response::from_parts(head, whole))
}

impl Upstream {
    /// The most recently used connection that is ready, or a new one.
    async fn connection(&self) -> io::Result<SendRequest<Full<Bytes>>> {
        let kept = {
            let mut idle = self.idle.borrow_mut();
            idle.retain(|connection| !connection.is_closed());
            let ready = idle.iter().rposition(SendRequest::is_ready);
            ready.map(|index| idle.swap_remove(index))
        };
        match kept {
            Some(connection) => Ok(connection),
            None => self.connect().await,
        }
    }

    async fn connect(&self) -> io::Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        self.drivers.spawn_local(async {
            // The caller that waits for an answer gets the error.
            let _ = driver.await;
        });
        Ok(sender)
    }
}
