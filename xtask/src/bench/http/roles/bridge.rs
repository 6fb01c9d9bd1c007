//! The floor for HTTP to stdio: the least work that any bridge does. One child for all clients, no limits, no
//! supervision, no cleanup; ids that collide are mixed up. The difference between leash and this bridge is the cost of
//! leash's promises.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::net::unix::pipe;
use tokio::sync::{Mutex, oneshot};

use super::body::{self, Answer, SESSION};
use super::server;

/// The parts of a message that decide its destination.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<&'a str>,
}

struct Bridge {
    input: Mutex<pipe::Sender>,
    /// The waiting clients, by the id of their request as it is written.
    waiting: RefCell<HashMap<Box<str>, oneshot::Sender<Bytes>>>,
    sessions: RefCell<HashSet<String>>,
    /// The senders that keep the event streams open.
    streams: RefCell<HashMap<String, oneshot::Sender<Infallible>>>,
}

pub(super) async fn run(listener: TcpListener, command: &[OsString]) -> io::Result<()> {
    // The child is not waited for: it exits at the end of its stdin, which this process holds.
    let (_child, input, output) = start(command)?;
    let bridge = Rc::new(Bridge {
        input: Mutex::new(input),
        waiting: RefCell::default(),
        sessions: RefCell::default(),
        streams: RefCell::default(),
    });
    let answers = deliver(Rc::clone(&bridge), output);
    let requests = server::serve(listener, move |request| respond(Rc::clone(&bridge), request));
    tokio::select! {
        ended = answers => ended,
        ended = requests => ended,
    }
}

fn start(command: &[OsString]) -> io::Result<(Child, pipe::Sender, pipe::Receiver)> {
    let mut child =
        Command::new(&command[0]).args(&command[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::Error::other("the server has no pipes"));
    };
    let input = pipe::Sender::from_owned_fd(OwnedFd::from(input))?;
    let output = pipe::Receiver::from_owned_fd(OwnedFd::from(output))?;
    Ok((child, input, output))
}

/// Sends each line of the child to the client that waits for it.
async fn deliver(bridge: Rc<Bridge>, mut output: pipe::Receiver) -> io::Result<()> {
    let mut buffer = BytesMut::with_capacity(64 << 10);
    loop {
        if output.read_buf(&mut buffer).await? == 0 {
            return Err(io::Error::other("the server has ended"));
        }
        while let Some(length) = buffer.iter().position(|&byte| byte == b'\n') {
            let line = buffer.split_to(length).freeze();
            buffer.advance(1);
            let envelope: Envelope<'_> = serde_json::from_slice(&line)?;
            let waits = envelope.id.and_then(|id| bridge.waiting.borrow_mut().remove(id.get()));
            if let Some(client) = waits {
                // The client may have disconnected meanwhile.
                let _ = client.send(line);
            }
        }
    }
}

async fn respond(bridge: Rc<Bridge>, request: Request<Incoming>) -> io::Result<Response<Answer>> {
    let (head, body) = request.into_parts();
    match head.method {
        Method::POST => {
            let message = body.collect().await.map_err(io::Error::other)?.to_bytes();
            post(&bridge, &head.headers, &message).await
        }
        Method::GET => Ok(match session(&bridge, &head.headers) {
            Some(id) => {
                let (keep, response) = body::quiet();
                bridge.streams.borrow_mut().insert(id, keep);
                response
            }
            None => body::empty(StatusCode::NOT_FOUND),
        }),
        Method::DELETE => Ok(match session(&bridge, &head.headers) {
            Some(id) => {
                bridge.sessions.borrow_mut().remove(&id);
                bridge.streams.borrow_mut().remove(&id);
                body::empty(StatusCode::OK)
            }
            None => body::empty(StatusCode::NOT_FOUND),
        }),
        _ => Ok(body::empty(StatusCode::METHOD_NOT_ALLOWED)),
    }
}

async fn post(bridge: &Bridge, headers: &HeaderMap, message: &[u8]) -> io::Result<Response<Answer>> {
    let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(message) else {
        return Ok(body::empty(StatusCode::BAD_REQUEST));
    };
    let opens = envelope.method == Some("initialize");
    if !opens && session(bridge, headers).is_none() {
        return Ok(body::empty(StatusCode::NOT_FOUND));
    }
    let Some(id) = envelope.id else {
        send(bridge, message).await?;
        return Ok(body::empty(StatusCode::ACCEPTED));
    };
    let (client, answer) = oneshot::channel();
    bridge.waiting.borrow_mut().insert(id.get().into(), client);
    send(bridge, message).await?;
    let mut response = body::json(answer.await.map_err(io::Error::other)?);
    if opens {
        let id = body::session_id();
        response.headers_mut().insert(SESSION, id.parse().map_err(io::Error::other)?);
        bridge.sessions.borrow_mut().insert(id);
    }
    Ok(response)
}

/// Sends a message as one line.
async fn send(bridge: &Bridge, message: &[u8]) -> io::Result<()> {
    let mut line = Vec::with_capacity(message.len() + 1);
    line.extend(message.iter().map(|&byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
    line.push(b'\n');
    bridge.input.lock().await.write_all(&line).await
}

fn session(bridge: &Bridge, headers: &HeaderMap) -> Option<String> {
    let id = headers.get(SESSION)?.to_str().ok()?;
    bridge.sessions.borrow().get(id).cloned()
}
