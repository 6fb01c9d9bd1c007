//! The client of the control socket, for `leash attach`, `leash end` and `leash ps`. It blocks; each call has its own
//! runtime.

use std::path::{Path, PathBuf};
use std::{io, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Uri, client::conn::http1, http::uri::PathAndQuery};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

use crate::config::Secret;
use leash_model::status::StatusView;
use leash_model::view::{PageLinkView, SessionView, SessionsView, StateView, VersionView};
use leash_model::{id, limits, receipt::Receipt};

/// The control socket's name in the runtime directory.
const NAME: &str = "control.sock";

/// The path of the control socket in a runtime directory.
pub fn socket_path(runtime_dir: &Path) -> PathBuf {
    runtime_dir.join(NAME)
}

/// The reason that a call failed.
#[derive(Debug, Error)]
pub enum ControlClientError {
    /// No daemon listens there.
    #[error("no `leash serve` listens on `{}`", .0.display())]
    NoDaemon(PathBuf),
    /// The path is too long for a socket.
    #[error("`{}` is too long for a socket: {} bytes, and the kernel takes {}", .0.display(), .0.as_os_str().len(), limits::SOCKET_PATH)]
    TooLong(PathBuf),
    /// The connection failed.
    #[error("cannot connect to `{}`", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The socket belongs to another user; nothing was sent.
    #[error("`{}` belongs to a process of uid {uid}; expected our uid or root", path.display())]
    Stranger {
        /// The socket.
        path: PathBuf,
        /// The user of the process.
        uid: u32,
    },
    /// The request is not valid; nothing was sent.
    #[error("`{0}` is not a valid request")]
    Request(String),
    /// The daemon listens but does not answer.
    #[error("the `leash serve` on `{}` does not answer", .0.display())]
    Silent(PathBuf),
    /// The connection broke in the middle.
    #[error("the answer of `leash serve` broke off")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The daemon refused the request.
    #[error("{detail}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The last word of the problem's type, such as `no-such-session`.
        problem: String,
        /// The detail of the problem.
        detail: String,
        /// The hint of the problem, if it has one.
        hint: Option<String>,
    },
    /// This version does not understand the answer.
    #[error("the answer of `leash serve` is not understood: {0}")]
    Malformed(String),
    /// The runtime could not be created.
    #[error("cannot start")]
    Start(#[source] io::Error),
}

/// The `User-Agent` of `leash end`, with which the receipt names the command as the one that asked for the end.
pub(crate) const END_AGENT: &str = "leash-end";

/// Sends one request and returns its whole answer: the status and the body. It waits for as long as the daemon shows
/// that it is alive, because the end of a session takes as long as the grace of its servers.
pub fn call(
    socket: &Path,
    method: &str,
    path: &str,
    body: Option<&[u8]>,
) -> Result<(u16, Vec<u8>), ControlClientError> {
    call_within(socket, request(method, path, body)?, limits::CONTROL_SILENCE)
}

/// The same, with a given time for which a living daemon may be silent.
fn call_within(
    socket: &Path,
    request: Request<Full<Bytes>>,
    silence: Duration,
) -> Result<(u16, Vec<u8>), ControlClientError> {
    runtime()?.block_on(async {
        let mut asked = std::pin::pin!(ask(socket, request));
        loop {
            if let Ok(answer) = tokio::time::timeout(silence, asked.as_mut()).await {
                return answer;
            }
            // The daemon may be stopped or stuck: then it does not answer this second request either.
            let alive = self::request("GET", "/v1/version", None)?;
            if tokio::time::timeout(silence, ask(socket, alive)).await.is_err() {
                return Err(ControlClientError::Silent(socket.to_owned()));
            }
        }
    })
}

fn runtime() -> Result<LocalRuntime, ControlClientError> {
    let options = LocalOptions::default();
    Builder::new_current_thread().enable_all().build_local(options).map_err(ControlClientError::Start)
}

/// Ends a session and waits until everything of it is gone, or proved to be left. `None` if there is no daemon, or it
/// does not know the session. For a session that ended before, returns its receipt again.
pub fn end_session(socket: &Path, id: &str, force: bool) -> Result<Option<Receipt>, ControlClientError> {
    // A text that is not an id must not become part of a path.
    if id::check_session(id).is_err() {
        return Ok(None);
    }
    let query = if force { "?force=true" } else { "" };
    let mut request = request("DELETE", &format!("/v1/sessions/{id}{query}"), None)?;
    request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(END_AGENT));
    match call_within(socket, request, limits::CONTROL_SILENCE) {
        Ok((404, _)) | Err(ControlClientError::NoDaemon(_)) => Ok(None),
        answer => value(answer?).map(Some),
    }
}

/// The living sessions of a daemon; none if there is no daemon.
pub fn sessions(socket: &Path) -> Result<Vec<SessionView>, ControlClientError> {
    match call(socket, "GET", "/v1/sessions", None) {
        Err(ControlClientError::NoDaemon(_)) => Ok(Vec::new()),
        answer => value(answer?).map(|SessionsView { sessions }| sessions),
    }
}

/// The version and the pid of a daemon.
pub fn version(socket: &Path) -> Result<VersionView, ControlClientError> {
    value(call(socket, "GET", "/v1/version", None)?)
}

/// The whole gateway behind a control socket.
pub fn status(socket: &Path) -> Result<StatusView, ControlClientError> {
    value(call(socket, "GET", "/v1/status", None)?)
}

/// A one-time link to the page of the gateway behind a control socket.
pub fn page_link(socket: &Path) -> Result<PageLinkView, ControlClientError> {
    value(call(socket, "POST", "/v1/page-links", None)?)
}

/// The whole gateway whose control API is at an address such as `127.0.0.1:5328`.
pub fn status_at(address: &str, token: &Secret) -> Result<StatusView, ControlClientError> {
    value(call_at(address, token, "GET", "/v1/status")?)
}

/// A one-time link to the page of that gateway, at the same address.
pub fn page_link_at(address: &str, token: &Secret) -> Result<PageLinkView, ControlClientError> {
    value(call_at(address, token, "POST", "/v1/page-links")?)
}

fn call_at(address: &str, token: &Secret, method: &str, path: &str) -> Result<(u16, Vec<u8>), ControlClientError> {
    let wrong = || ControlClientError::Request(address.to_owned());
    let mut request = request(method, path, None)?;
    let bearer = HeaderValue::from_str(&format!("Bearer {}", token.expose())).map_err(|_| wrong())?;
    request.headers_mut().insert(AUTHORIZATION, bearer);
    request.headers_mut().insert(HOST, HeaderValue::from_str(address).map_err(|_| wrong())?);
    let path = PathBuf::from(address);
    runtime()?.block_on(async {
        let asked = async {
            let stream = TcpStream::connect(address).await.map_err(|source| match source.kind() {
                io::ErrorKind::ConnectionRefused => ControlClientError::NoDaemon(path.clone()),
                _ => ControlClientError::Connect { path: path.clone(), source },
            })?;
            exchange(stream, request).await
        };
        match tokio::time::timeout(limits::CONTROL_SILENCE, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(ControlClientError::Silent(path.clone())),
        }
    })
}

/// The names and the URLs of a session's servers. The URLs contain a secret.
pub fn servers(socket: &Path, session: &str) -> Result<Vec<(String, Secret)>, ControlClientError> {
    if let Err(why) = id::check_session(session) {
        return Err(ControlClientError::Request(format!("{session}: {why}")));
    }
    let found: SessionView = value(call(socket, "GET", &format!("/v1/sessions/{session}"), None)?)?;
    let over = match found.state {
        StateView::Starting | StateView::Live => None,
        StateView::Ending => Some("is ending"),
        StateView::Ended => Some("has ended"),
    };
    if let Some(over) = over {
        let detail = format!("session `{session}` {over}");
        return Err(ControlClientError::Refused { status: 409, problem: "ended".to_owned(), detail, hint: None });
    }
    Ok(found.servers.into_iter().map(|server| (server.name, Secret::new(server.url))).collect())
}

/// The value in an answer. Fields of a later version are ignored.
fn value<T: DeserializeOwned>((status, body): (u16, Vec<u8>)) -> Result<T, ControlClientError> {
    if !matches!(status, 200 | 201) {
        return Err(refused(status, &body));
    }
    serde_json::from_slice(&body).map_err(|error| ControlClientError::Malformed(error.to_string()))
}

fn request(method: &str, path: &str, body: Option<&[u8]>) -> Result<Request<Full<Bytes>>, ControlClientError> {
    let wrong = || ControlClientError::Request(format!("{method} {path}"));
    let target: PathAndQuery = path.parse().map_err(|_| wrong())?;
    let mut request = Request::new(Full::new(Bytes::copy_from_slice(body.unwrap_or_default())));
    *request.method_mut() = Method::from_bytes(method.as_bytes()).map_err(|_| wrong())?;
    *request.uri_mut() = Uri::from(target);
    let headers = request.headers_mut();
    headers.insert(HOST, HeaderValue::from_static("localhost"));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, application/problem+json"));
    if body.is_some() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    Ok(request)
}

async fn ask(socket: &Path, request: Request<Full<Bytes>>) -> Result<(u16, Vec<u8>), ControlClientError> {
    exchange(connect(socket).await?, request).await
}

/// Sends a request over a connection and reads the answer.
async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<(u16, Vec<u8>), ControlClientError>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let broken = |error: hyper::Error| ControlClientError::Broken(error.into());
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(broken)?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), limits::CONTROL_ANSWER).collect().await;
        Ok((status, body.map_err(ControlClientError::Broken)?.to_bytes().to_vec()))
    };
    // If the connection fails, `exchange` gets the error, so this future only drives the connection.
    let carried = async {
        let _ = connection.await;
        std::future::pending().await
    };
    tokio::select! {
        answer = exchange => answer,
        answer = carried => answer,
    }
}

async fn connect(socket: &Path) -> Result<UnixStream, ControlClientError> {
    if socket.as_os_str().len() > limits::SOCKET_PATH {
        return Err(ControlClientError::TooLong(socket.to_owned()));
    }
    let failed = |source: io::Error| match source.kind() {
        // A socket without a listener was left by a daemon that was killed.
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ControlClientError::NoDaemon(socket.to_owned()),
        _ => ControlClientError::Connect { path: socket.to_owned(), source },
    };
    let stream = UnixStream::connect(socket).await.map_err(failed)?;
    // The request may hold credentials, so it is not sent to a process of another user.
    let uid = stream.peer_cred().map_err(failed)?.uid();
    if uid != 0 && uid != rustix::process::geteuid().as_raw() {
        return Err(ControlClientError::Stranger { path: socket.to_owned(), uid });
    }
    Ok(stream)
}

/// A problem document (RFC 9457) as an error.
fn refused(status: u16, body: &[u8]) -> ControlClientError {
    let problem: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |name: &str| problem[name].as_str().map(str::to_owned);
    let kind = text("type").unwrap_or_default();
    let detail = text("detail").or_else(|| text("title"));
    ControlClientError::Refused {
        status,
        problem: kind.rsplit(':').next().unwrap_or_default().to_owned(),
        detail: detail.unwrap_or_else(|| format!("`leash serve` answered {status}")),
        hint: text("hint"),
    }
}

#[cfg(test)]
mod tests;
