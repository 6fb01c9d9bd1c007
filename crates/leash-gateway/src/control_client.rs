//! The other end of the control socket, for programs that ask and wait: `leash attach`, `leash end`, `leash ps`. Blocking; the
//! runtime that HTTP needs lives as long as the call.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use thiserror::Error;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, LocalOptions};

use crate::config::Secret;
use leash_model::receipt::Receipt;
use leash_model::{id, limits};

/// The control socket's name in the runtime directory.
const NAME: &str = "control.sock";

/// Where the control socket of a runtime directory is.
pub fn socket_path(runtime_dir: &Path) -> PathBuf {
    runtime_dir.join(NAME)
}

/// Why there is no answer, or not the one that was asked for.
#[derive(Debug, Error)]
pub enum ControlClientError {
    /// No program listens at the address.
    #[error("no `leash serve` listens on `{}`", .0.display())]
    NoDaemon(PathBuf),
    /// The path is too long for a socket.
    #[error("`{}` is too long for a socket: {} bytes, and the kernel takes {}", .0.display(), .0.as_os_str().len(), limits::SOCKET_PATH)]
    TooLong(PathBuf),
    /// It can't be reached.
    #[error("cannot connect to `{}`", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody else has put a socket there; nothing was sent.
    #[error("`{}` belongs to a process of uid {uid}, who is neither we nor root", path.display())]
    Stranger {
        /// The socket.
        path: PathBuf,
        /// Whose process it is.
        uid: u32,
    },
    /// It was not asked anything: this can't be put into a request.
    #[error("`{0}` can't be asked for")]
    Request(String),
    /// It is there and does not answer.
    #[error("the `leash serve` on `{}` does not answer", .0.display())]
    Silent(PathBuf),
    /// The connection broke in the middle.
    #[error("the answer of `leash serve` broke off")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It said no.
    #[error("{detail}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The last word of the problem's type, such as `no-such-session`.
        problem: String,
        /// What is wrong.
        detail: String,
        /// What to do about it, if it said so.
        hint: Option<String>,
    },
    /// It said something that this version does not understand.
    #[error("the answer of `leash serve` is not understood: {0}")]
    Malformed(String),
    /// No runtime could be made.
    #[error("cannot start")]
    Start(#[source] io::Error),
}

/// One request and its whole answer: the status and the body. The answer is waited for as long as the daemon shows that it is
/// alive, because the end of a session takes as long as its servers are given.
pub fn call(
    socket: &Path,
    method: &str,
    path: &str,
    body: Option<&[u8]>,
) -> Result<(u16, Vec<u8>), ControlClientError> {
    call_within(socket, request(method, path, body)?, limits::CONTROL_SILENCE)
}

/// The same, with another idea of how long a living daemon can be silent.
fn call_within(
    socket: &Path,
    request: Request<Full<Bytes>>,
    silence: Duration,
) -> Result<(u16, Vec<u8>), ControlClientError> {
    let options = LocalOptions::default();
    let runtime = Builder::new_current_thread().enable_all().build_local(options).map_err(ControlClientError::Start)?;
    runtime.block_on(async {
        let mut asked = std::pin::pin!(ask(socket, request));
        loop {
            if let Ok(answer) = tokio::time::timeout(silence, asked.as_mut()).await {
                return answer;
            }
            // It may be stopped, or stuck: then another question is not answered either.
            let alive = self::request("GET", "/v1/version", None)?;
            if tokio::time::timeout(silence, ask(socket, alive)).await.is_err() {
                return Err(ControlClientError::Silent(socket.to_owned()));
            }
        }
    })
}

/// Ends a session and waits until everything of it is gone, or proved to be left. `None` when no daemon is there, or when it
/// does not know the session. The receipt of a session that has ended before is given again.
pub fn end_session(socket: &Path, id: &str, force: bool) -> Result<Option<Receipt>, ControlClientError> {
    // A word that can't be an id must not become another path.
    if id::check_session(id).is_err() {
        return Ok(None);
    }
    let query = if force { "?force=true" } else { "" };
    match call(socket, "DELETE", &format!("/v1/sessions/{id}{query}"), None) {
        Ok((404, _)) | Err(ControlClientError::NoDaemon(_)) => Ok(None),
        Ok((200, body)) => {
            serde_json::from_slice(&body).map(Some).map_err(|error| ControlClientError::Malformed(error.to_string()))
        }
        Ok((status, body)) => Err(refused(status, &body)),
        Err(error) => Err(error),
    }
}

/// The sessions that a daemon has, as the control API shows them; none when no daemon is there.
pub fn sessions(socket: &Path) -> Result<Vec<Value>, ControlClientError> {
    match call(socket, "GET", "/v1/sessions", None) {
        Ok((200, body)) => match serde_json::from_slice::<Value>(&body).map(|mut all| all["sessions"].take()) {
            Ok(Value::Array(sessions)) => Ok(sessions),
            Ok(_) => Err(ControlClientError::Malformed("there is no list of sessions".to_owned())),
            Err(error) => Err(ControlClientError::Malformed(error.to_string())),
        },
        Ok((status, body)) => Err(refused(status, &body)),
        Err(ControlClientError::NoDaemon(_)) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Where a client finds the servers of a session, by their names. The addresses hold a secret.
pub fn servers(socket: &Path, session: &str) -> Result<Vec<(String, Secret)>, ControlClientError> {
    if let Err(why) = id::check_session(session) {
        return Err(ControlClientError::Request(format!("{session}: {why}")));
    }
    let (status, body) = call(socket, "GET", &format!("/v1/sessions/{session}"), None)?;
    if status != 200 {
        return Err(refused(status, &body));
    }
    let malformed = |what: &str| ControlClientError::Malformed(what.to_owned());
    let mut found: Value = serde_json::from_slice(&body).map_err(|error| malformed(&error.to_string()))?;
    if let Some(state @ ("ending" | "ended")) = found["state"].as_str() {
        let detail = format!("session `{session}` {}", if state == "ended" { "has ended" } else { "is ending" });
        return Err(ControlClientError::Refused { status: 409, problem: "ended".to_owned(), detail, hint: None });
    }
    let Value::Array(servers) = found["servers"].take() else { return Err(malformed("there is no list of servers")) };
    let server = |server: &Value| Some((server["name"].as_str()?.to_owned(), Secret::new(server["url"].as_str()?)));
    servers.iter().map(|found| server(found).ok_or_else(|| malformed("a server has no name or no url"))).collect()
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
    let stream = connect(socket).await?;
    let broken = |error: hyper::Error| ControlClientError::Broken(error.into());
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(broken)?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), limits::CONTROL_ANSWER).collect().await;
        Ok((status, body.map_err(ControlClientError::Broken)?.to_bytes().to_vec()))
    };
    // What the connection came to, the exchange is told.
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
        // A socket that nobody listens on was left by a daemon that was killed.
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ControlClientError::NoDaemon(socket.to_owned()),
        _ => ControlClientError::Connect { path: socket.to_owned(), source },
    };
    let stream = UnixStream::connect(socket).await.map_err(failed)?;
    // What is sent may hold credentials: not to whoever has put a socket there.
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
