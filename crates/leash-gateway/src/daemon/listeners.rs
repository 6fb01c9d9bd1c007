//! The accept loops of the control API. leash binds them before the gateway starts and closes them before it ends.

use std::{net::SocketAddr, path::Path, rc::Rc};

use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_util::sync::CancellationToken;

use super::caller::{self, CallerProof};
use super::{ControlSettings, ControlSocket, socket::SocketClaim};
use crate::error::{ControlError, ServeError};
use crate::{connection::ClientConnection, control::Jobs, control_client, listen};
use leash_model::error::with_causes;
use leash_tree::ledger::store;
use leash_upstream::notice::Notice;

/// The listeners, before they accept connections.
pub(crate) struct ControlListeners {
    socket: Option<(SocketClaim, std::os::unix::net::UnixListener)>,
    address: Option<(TcpListener, CallerProof)>,
    /// The reason why there is no control socket, although one was wanted.
    missing: Option<ControlError>,
}

/// The signals to the tasks that serve callers.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionSignals {
    /// No new connection is accepted. Requests that have arrived are answered.
    pub(super) closing: CancellationToken,
    /// All sessions have ended, so event streams end too.
    pub(super) over: CancellationToken,
}

/// The running accept loops.
pub(crate) struct RunningListeners {
    claim: Option<SocketClaim>,
    signals: ConnectionSignals,
}

impl ControlListeners {
    /// Binds the configured socket and address. After an error, the gateway must not start.
    pub(crate) fn open(control: &ControlSettings, runtime_dir: &Path) -> Result<ControlListeners, ServeError> {
        let needed = control.on_demand.is_some() || matches!(control.socket, ControlSocket::At(_));
        let (socket, missing) = match socket(&control.socket, runtime_dir) {
            Ok(socket) => (socket, None),
            Err(error) if needed => return Err(error.into()),
            Err(error) => (None, Some(error)),
        };
        let address = match &control.listen {
            Some(wanted) if wanted.token.expose().is_empty() => return Err(ServeError::NoControlToken(wanted.address)),
            Some(wanted) => {
                let listener = listen::bind(wanted.address)?;
                let bound = listener.local_addr().map_err(ServeError::Start)?;
                Some((listener, CallerProof::Token { bound, token: Rc::new(wanted.token.clone()), connection: None }))
            }
            None => None,
        };
        Ok(ControlListeners { socket, address, missing })
    }

    /// Starts the accept loops.
    pub(crate) fn serve(self, jobs: &Rc<Jobs>) -> Result<RunningListeners, ServeError> {
        let ControlListeners { socket, address, missing } = self;
        if let Some(missing) = missing {
            let text = with_causes(&missing);
            jobs.gateway.warn(format!("there is no control socket: {text}\n  hint: --control PATH puts it elsewhere"));
        }
        let signals = ConnectionSignals::default();
        let mut claim = None;
        if let Some((taken, listener)) = socket {
            let listener = UnixListener::from_std(listener).map_err(ServeError::Start)?;
            jobs.gateway.tell(|| Notice::ControlSocket(taken.path().to_owned()));
            // Hosts start their servers with few environment variables, without those that name the runtime directory.
            jobs.attach_at(taken.path());
            claim = Some(taken);
            jobs.gateway.tasks.spawn_local(accept_local(Rc::clone(jobs), listener, signals.clone()));
        }
        if let Some((listener, proof)) = address {
            let at = listener.local_addr().map_err(ServeError::Start)?;
            jobs.gateway.tell(|| Notice::ControlListening(at));
            jobs.gateway.tasks.spawn_local(accept(Rc::clone(jobs), listener, proof, signals.clone()));
        }
        Ok(RunningListeners { claim, signals })
    }
}

impl RunningListeners {
    /// Stops the accept loops and frees the path. The next gateway can start while this one ends its sessions.
    pub(crate) fn close(&mut self) {
        self.claim = None;
        self.signals.closing.cancel();
    }

    /// Ends the event streams, after all sessions have ended.
    pub(crate) fn over(&self) {
        self.signals.over.cancel();
    }
}

type Taken = (SocketClaim, std::os::unix::net::UnixListener);

fn socket(wanted: &ControlSocket, runtime_dir: &Path) -> Result<Option<Taken>, ControlError> {
    match wanted {
        ControlSocket::None => Ok(None),
        ControlSocket::At(path) => SocketClaim::take(path).map(Some),
        ControlSocket::Runtime => {
            store::prepare_runtime(runtime_dir)?;
            SocketClaim::take(&control_client::socket_path(runtime_dir)).map(Some)
        }
    }
}

async fn accept_local(jobs: Rc<Jobs>, listener: UnixListener, signals: ConnectionSignals) {
    let begin = |(stream, _)| caller::serve_local(&jobs, stream, &signals);
    listen::accept_each(&jobs, &signals.closing, async || listener.accept().await, begin).await;
    // Serves the callers that connected before the path was freed. `accept` does not block: the runtime made the socket
    // non-blocking.
    let Ok(listener) = listener.into_std() else { return };
    while let Ok((stream, _)) = listener.accept() {
        let stream = stream.set_nonblocking(true).and_then(|()| tokio::net::UnixStream::from_std(stream));
        if let Ok(stream) = stream {
            caller::serve_local(&jobs, stream, &signals);
        }
    }
}

async fn accept(jobs: Rc<Jobs>, listener: TcpListener, proof: CallerProof, signals: ConnectionSignals) {
    let begin = |(stream, peer): (TcpStream, SocketAddr)| {
        listen::notice_dead_peers(&stream);
        let Ok(local) = stream.local_addr() else { return };
        let connection = Rc::new(ClientConnection::new(peer, local));
        // The page asks for the user of a browser, which may leave at any time.
        connection.find_client_end(&jobs.gateway.lookup);
        caller::serve_connection(&jobs, stream, proof.clone().of(connection), &signals);
    };
    listen::accept_each(&jobs, &signals.closing, async || listener.accept().await, begin).await;
}
