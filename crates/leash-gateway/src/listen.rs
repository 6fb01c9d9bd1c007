//! Accepts clients and serves their connections.

use std::{convert::Infallible, io, net::SocketAddr, pin::Pin, rc::Rc, time::Duration};

use bytes::Bytes;
use hyper::body::{Body as _, Incoming};
use hyper::{Request, Response, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::connection::{ClientConnection, OwedResponse};
use crate::socket::{OwedBody, Socket};
use crate::{control::Jobs, error::ServeError, front, metrics::add};
use leash_model::{clock::Moment, limits};

/// Accepts clients until told to stop.
pub(crate) async fn accept(jobs: Rc<Jobs>, listener: TcpListener, stop: CancellationToken) {
    let begin = |(stream, peer): (TcpStream, SocketAddr)| {
        let Ok(local) = stream.local_addr() else { return };
        let connection = Rc::new(ClientConnection::new(peer, local));
        // Looks the client's user up now: if the client leaves after its request, the kernel no longer knows the user.
        connection.find_client_end(&jobs.gateway.lookup);
        jobs.gateway.tasks.spawn_local(serve(Rc::clone(&jobs), connection, stream, stop.clone()));
    };
    accept_each(&jobs, &stop, async || listener.accept().await, begin).await;
}

/// Accepts connections until told to stop, and passes each on.
pub(super) async fn accept_each<S>(
    jobs: &Jobs,
    stop: &CancellationToken,
    accept: impl AsyncFn() -> io::Result<S>,
    begin: impl Fn(S),
) {
    let mut told = None;
    loop {
        let accepted = tokio::select! {
            accepted = accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok(connection) => begin(connection),
            Err(error) => pause(jobs, &error, &mut told).await,
        }
    }
}

/// Warns and pauses after a failed accept, when leash is out of descriptors or memory. Existing connections go on. If a
/// client reset its connection before leash accepted it, there is no pause.
async fn pause(jobs: &Jobs, error: &io::Error, told: &mut Option<Moment>) {
    if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        return;
    }
    let now = Moment::on_runtime();
    if told.replace(now).is_none_or(|last| now.since(last) > limits::ACCEPT_QUIET) {
        jobs.gateway.warn(format!("cannot accept a connection: {error}"));
    }
    let deadline = tokio::time::Instant::now() + limits::ACCEPT_PAUSE;
    tokio::time::sleep_until(deadline).await;
}

/// Serves one connection to its end.
async fn serve(jobs: Rc<Jobs>, connection: Rc<ClientConnection>, stream: TcpStream, stop: CancellationToken) {
    add(&jobs.gateway.metrics.connections, 1);
    let _counted = jobs.gateway.trimmer.count();
    notice_dead_peers(&stream);
    let mut socket = Socket::new(stream, &connection, &jobs.gateway.lookup);
    while let Some(resting) = serve_until_it_rests(&jobs, &connection, socket, &stop).await {
        socket = resting;
        let next_request = tokio::time::timeout(limits::HEADER_READ, socket.has_input());
        tokio::select! {
            input = next_request => if input.is_err() { break },
            () = stop.cancelled() => break,
        }
    }
    connection.closed();
    jobs.gateway.metrics.connections.set(jobs.gateway.metrics.connections.get() - 1);
}

/// Serves requests. Returns the socket when the connection rests: without hyper's state it takes little memory. `None`
/// at its end.
async fn serve_until_it_rests(
    jobs: &Rc<Jobs>,
    connection: &Rc<ClientConnection>,
    socket: Socket,
    stop: &CancellationToken,
) -> Option<Socket> {
    let service = service_fn(|request: Request<Incoming>| {
        // Set now, because hyper may read more input before it polls the response. A request with a body is complete
        // when the body was read.
        let is_read = request.body().is_end_stream();
        connection.owe(if is_read { OwedResponse::Answer } else { OwedResponse::Request });
        connection.request_read(is_read);
        // Boxed, because hyper reserves room for the largest response future in every connection, even an idle one.
        Box::pin(answer(Rc::clone(jobs), Rc::clone(connection), request))
    });
    // Boxed, so that the task of a resting connection is small.
    let mut served = Box::new(http(true).serve_connection(TokioIo::new(socket), service));
    tokio::select! {
        // The connection is over. If the client broke it off, no response is possible.
        _ = &mut served => return None,
        () = connection.rests() => {
            let http1::Parts { io, read_buf, .. } = served.into_parts();
            let mut socket = io.into_inner();
            // The beginning of the next request, if it came together with the last one. A copy: even an empty part of
            // hyper's buffer would keep the whole buffer.
            socket.give_back(Bytes::copy_from_slice(&read_buf));
            return Some(socket);
        }
        () = stop.cancelled() => {}
    }
    // Finishes the current response. Closes an idle connection.
    Pin::new(&mut *served).graceful_shutdown();
    let _ = served.await;
    None
}

async fn answer(
    jobs: Rc<Jobs>,
    connection: Rc<ClientConnection>,
    request: Request<Incoming>,
) -> Result<Response<OwedBody>, Infallible> {
    let answer = front::answer(jobs, Rc::clone(&connection), request).await?;
    Ok(answer.map(|body| OwedBody::new(body, &connection)))
}

/// Returns the HTTP settings of a connection, for several requests or for one.
pub(super) fn http(keep_alive: bool) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .keep_alive(keep_alive)
        .header_read_timeout(limits::HEADER_READ)
        .max_headers(limits::HEADERS)
        .max_buf_size(limits::HEAD_BYTES);
    http
}

/// Makes the kernel notice a peer that vanished without closing the connection (cable, suspended machine, half-open):
/// it sends probes while leash writes nothing, and limits the time for unacknowledged data while leash writes.
pub(super) fn notice_dead_peers(stream: &TcpStream) {
    let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_socket_keepalive(stream, true);
    let _ = rustix::net::sockopt::set_tcp_keepidle(stream, limits::TCP_PROBE);
    let _ = rustix::net::sockopt::set_tcp_keepintvl(stream, limits::TCP_PROBE);
    let _ = rustix::net::sockopt::set_tcp_keepcnt(stream, limits::TCP_PROBES);
    let _ =
        rustix::net::sockopt::set_tcp_user_timeout(stream, seconds(limits::TCP_UNACKNOWLEDGED).saturating_mul(1000));
}

/// Binds a listener.
pub(super) fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    let bind = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // Allows to bind the port of a gateway that was just stopped.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(limits::BACKLOG)
    };
    bind().map_err(|source| ServeError::Listen { address, source })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::{config::Settings, serve};
    use leash_tree::{ledger::book::Book, places::Places};
    use testkit::Scratch;

    /// The beginning of the next request came before the connection rested, and its end comes after that.
    #[tokio::test(flavor = "local")]
    async fn input_is_kept_while_a_connection_rests() {
        let dir = Scratch::new();
        let (places, listener) = (Places::below(&*dir), bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port"));
        let book = Book::of_gateway(&places, None).expect("a book");
        let jobs = Jobs::new(Rc::new(serve::gateway(Settings::default(), places, book, Box::new(|_| ()))), None);
        let at = listener.local_addr().expect("its address");
        let mut client = TcpStream::connect(at).await.expect("a connection");
        let (stream, peer) = listener.accept().await.expect("a connection");
        let (connection, stop) = (Rc::new(ClientConnection::new(peer, at)), CancellationToken::new());
        let mut socket = Socket::new(stream, &connection, &jobs.gateway.lookup);
        for part in
            ["GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\nGET /hea", "lthz HTTP/1.1\r\nhost: localhost\r\n\r\n"]
        {
            client.write_all(part.as_bytes()).await.expect("it is sent");
            socket = serve_until_it_rests(&jobs, &connection, socket, &stop).await.expect("it rests");
            let mut answer = vec![0; 1000];
            let length = client.read(&mut answer).await.expect("an answer");
            let answer = String::from_utf8_lossy(&answer[..length]);
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nok\n"), "{answer}");
        }
        drop(client);
        assert!(serve_until_it_rests(&jobs, &connection, socket, &stop).await.is_none(), "the client has left");
    }
}
