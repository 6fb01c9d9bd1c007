//! An HTTP/1.1 server on one thread: the common part of echo and both floors.

use std::future::Future;
use std::io;
use std::net::SocketAddr;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::task::LocalSet;
use tokio_util::task::TaskTracker;

use super::body::Answer;

/// As large as the kernel allows: a bench that opens 10,000 connections should not wait for retransmissions.
const BACKLOG: u32 = 4096;

/// Runs `role` to its end on a runtime of one thread.
pub(crate) fn alone(role: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    LocalSet::new().block_on(&runtime, role)
}

/// Listens, within a runtime.
pub(crate) fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(BACKLOG)
}

/// Answers every request by `answer`, until the process is killed.
pub(crate) async fn serve<F>(
    listener: TcpListener,
    answer: impl Fn(Request<Incoming>) -> F + Clone + 'static,
) -> io::Result<()>
where
    F: Future<Output = io::Result<Response<Answer>>> + 'static,
{
    let connections = TaskTracker::new();
    loop {
        let (stream, _) = listener.accept().await?;
        connections.spawn_local(connection(stream, answer.clone()));
    }
}

async fn connection<F>(stream: TcpStream, answer: impl Fn(Request<Incoming>) -> F)
where
    F: Future<Output = io::Result<Response<Answer>>>,
{
    // Most connections end because the client disconnects.
    let _ = stream.set_nodelay(true);
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)).await;
}
