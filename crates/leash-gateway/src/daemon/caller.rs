//! One connection to the control API: checks the caller, and serves its requests.

use std::{net::SocketAddr, rc::Rc};

use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

use super::listeners::ConnectionSignals;
use crate::connection::ClientConnection;
use crate::control::{self, ControlAddress, Jobs, Problem};
use crate::page::{self, PageCaller};
use crate::{admission::ListenerRules, config::Secret, listen, metrics::add, respond::Answer};
use leash_model::limits;

/// The proof that a caller must give.
#[derive(Clone)]
pub(super) enum CallerProof {
    /// No further proof: the kernel has named the user of the process.
    Local,
    /// The token. Requests of web pages are refused.
    Token {
        /// The address at which leash listens.
        bound: SocketAddr,
        token: Rc<Secret>,
        /// The connection of the caller; `None` before one is accepted.
        connection: Option<Rc<ClientConnection>>,
    },
}

impl CallerProof {
    /// The same, for one connection.
    pub(super) fn of(self, connection: Rc<ClientConnection>) -> CallerProof {
        match self {
            CallerProof::Local => CallerProof::Local,
            CallerProof::Token { bound, token, .. } => {
                CallerProof::Token { bound, token, connection: Some(connection) }
            }
        }
    }
}

/// Serves a process of our own user or of root. Closes the connection of any other user without a response.
pub(super) fn serve_local(jobs: &Rc<Jobs>, stream: UnixStream, signals: &ConnectionSignals) {
    let ours = |uid: u32| uid == 0 || uid == rustix::process::geteuid().as_raw();
    if stream.peer_cred().is_ok_and(|peer| ours(peer.uid())) {
        serve_connection(jobs, stream, CallerProof::Local, signals);
    }
}

/// Serves a connection to its end.
pub(super) fn serve_connection<S>(jobs: &Rc<Jobs>, stream: S, proof: CallerProof, signals: &ConnectionSignals)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    jobs.gateway.tasks.spawn_local(serve(Rc::clone(jobs), stream, proof, signals.clone()));
}

async fn serve<S>(jobs: Rc<Jobs>, stream: S, proof: CallerProof, signals: ConnectionSignals)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    add(&jobs.gateway.metrics.connections, 1);
    let _counted = jobs.gateway.trimmer.count();
    let service = service_fn(|request: Request<Incoming>| {
        let (jobs, proof) = (Rc::clone(&jobs), proof.clone());
        async move { Ok::<_, std::convert::Infallible>(answer(jobs, &proof, request).await) }
    });
    // A caller that connected while the accept loop was closing may send one request.
    let late = signals.closing.is_cancelled();
    let http = listen::http(!late);
    let mut served = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
    let closing = async { if late { std::future::pending().await } else { signals.closing.cancelled().await } };
    let over = async {
        signals.over.cancelled().await;
        tokio::time::sleep_until(tokio::time::Instant::now() + limits::CONTROL_LAST_READ).await;
    };
    tokio::pin!(over);
    let closed = tokio::select! {
        // The connection is over. If the caller broke it off, no response is possible.
        _ = served.as_mut() => false,
        () = closing => true,
        () = over.as_mut() => false,
    };
    if closed {
        // Finishes the current response, and event streams up to their last event. Closes an idle connection.
        served.as_mut().graceful_shutdown();
        tokio::select! {
            _ = served => {}
            () = over => {}
        }
    }
    jobs.gateway.metrics.connections.set(jobs.gateway.metrics.connections.get() - 1);
}

/// Answers a request of the API, or of the page at the same address.
async fn answer(jobs: Rc<Jobs>, proof: &CallerProof, mut request: Request<Incoming>) -> Answer {
    let page = jobs.page().filter(|_| page::is_path(request.uri().path()));
    match (check(&jobs, proof, &request), page, proof) {
        // A program that has proved who it is.
        (Ok(()), Some(page), _) => page.answer(PageCaller::Admitted, request).await,
        // A browser, which cannot send the token. The page asks for its cookie.
        (Err(_), Some(page), CallerProof::Token { bound, connection: Some(connection), .. }) => {
            let peer = connection.peer(&jobs.gateway.lookup);
            page.answer(PageCaller::Tcp { bound: *bound, peer }, request).await
        }
        (Ok(()), None, _) => {
            if let CallerProof::Token { bound, .. } = proof {
                request.extensions_mut().insert(ControlAddress(*bound));
            }
            control::answer(jobs, request).await
        }
        (Err(refused), ..) => refused,
    }
}

/// Checks that the caller may use the API. Web pages may not, even with a token: browsers send an `Origin`, programs do
/// not. A caller with the token may be of any user.
fn check(jobs: &Jobs, proof: &CallerProof, request: &Request<Incoming>) -> Result<(), Answer> {
    let settings = jobs.gateway.settings();
    let (bound, token) = match proof {
        CallerProof::Local => (None, None),
        CallerProof::Token { bound, token, .. } => (Some(*bound), Some(&**token)),
    };
    let rules = ListenerRules { bound, hosts: &settings.allowed_hosts, origins: None, token };
    rules
        .check_head(request.uri(), request.headers())
        .and_then(|()| rules.check_caller(request.headers(), None))
        .map_err(|refusal| Problem::refused(&refusal).answer())
}
