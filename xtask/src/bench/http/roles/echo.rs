//! The MCP server behind the gateways: one tool that returns its argument. It is so cheap that it does not affect the
//! measurement.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{self, Write};
use std::rc::Rc;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::body::{self, Answer, SESSION};
use super::server;

/// The parts of a message that decide the answer.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    arguments: Arguments<'a>,
}

#[derive(Deserialize)]
struct Arguments<'a> {
    /// As it was written: the answer has the same escapes.
    #[serde(borrow)]
    text: &'a RawValue,
}

#[derive(Deserialize)]
struct Hello<'a> {
    #[serde(borrow, rename = "protocolVersion")]
    version: Cow<'a, str>,
}

const TOOLS: &str = r#"{"tools":[{"name":"echo","description":"Says what it is told.","inputSchema":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}}]}"#;

/// The kind of a message.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Initialize,
    Request,
    /// It gets no answer.
    Notification,
}

/// Appends the answer to one message, if it has one.
fn answer(message: &[u8], out: &mut Vec<u8>) -> io::Result<Kind> {
    let message: Message<'_> = serde_json::from_slice(message)?;
    let (Some(id), Some(method)) = (message.id, message.method) else {
        return Ok(Kind::Notification);
    };
    write!(out, r#"{{"jsonrpc":"2.0","id":{id},"#)?;
    let params = message.params.map_or("{}", RawValue::get);
    match &*method {
        "tools/call" => match serde_json::from_str::<Call<'_>>(params) {
            Ok(call) => {
                let text = call.arguments.text;
                write!(out, r#""result":{{"content":[{{"type":"text","text":{text}}}],"isError":false}}}}"#)?;
            }
            Err(_) => write!(out, r#""error":{{"code":-32602,"message":"echo wants `text`"}}}}"#)?,
        },
        "ping" => write!(out, r#""result":{{}}}}"#)?,
        "tools/list" => write!(out, r#""result":{TOOLS}}}"#)?,
        "initialize" => {
            let version = serde_json::from_str::<Hello<'_>>(params).map_or("2025-06-18".into(), |hello| hello.version);
            write!(
                out,
                r#""result":{{"protocolVersion":"{version}","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"echo","version":"1"}}}}}}"#
            )?;
            return Ok(Kind::Initialize);
        }
        _ => write!(out, r#""error":{{"code":-32601,"message":"there is no such method"}}}}"#)?,
    }
    Ok(Kind::Request)
}

/// Reads a message per line, until the end of stdin. All messages from one read are answered by one write.
pub(super) fn on_stdio() -> io::Result<()> {
    let mut input = Vec::with_capacity(64 << 10);
    let mut output = Vec::with_capacity(64 << 10);
    loop {
        let start = input.len();
        input.resize(start + (32 << 10), 0);
        let got = match rustix::io::read(rustix::stdio::stdin(), &mut input[start..]) {
            Err(rustix::io::Errno::INTR) => 0,
            Ok(0) => return Ok(()),
            other => other?,
        };
        input.truncate(start + got);
        let mut taken = 0;
        while let Some(length) = input[taken..].iter().position(|&byte| byte == b'\n') {
            let line = &input[taken..taken + length];
            taken += length + 1;
            if answer(line, &mut output)? != Kind::Notification {
                output.push(b'\n');
            }
        }
        input.drain(..taken);
        let mut rest = &output[..];
        while !rest.is_empty() {
            let written = rustix::io::retry_on_intr(|| rustix::io::write(rustix::stdio::stdout(), rest))?;
            rest = &rest[written..];
        }
        output.clear();
    }
}

/// The open sessions, each with the sender that keeps its event stream open.
pub(crate) type Sessions = RefCell<HashMap<String, Option<oneshot::Sender<Infallible>>>>;

/// Streamable HTTP with sessions and JSON answers.
pub(super) async fn on_http(listener: TcpListener) -> io::Result<()> {
    let sessions = Rc::new(Sessions::default());
    server::serve(listener, move |request| respond(Rc::clone(&sessions), request)).await
}

pub(crate) async fn respond(sessions: Rc<Sessions>, request: Request<Incoming>) -> io::Result<Response<Answer>> {
    let (head, body) = request.into_parts();
    match head.method {
        Method::POST => {
            let message = body.collect().await.map_err(io::Error::other)?.to_bytes();
            post(&sessions, &head.headers, &message)
        }
        Method::GET => {
            let mut sessions = sessions.borrow_mut();
            let Some(stream) = session(&head.headers).and_then(|id| sessions.get_mut(id)) else {
                return Ok(body::empty(StatusCode::NOT_FOUND));
            };
            // A second stream of a session ends the first.
            let (keep, response) = body::quiet();
            *stream = Some(keep);
            Ok(response)
        }
        Method::DELETE => {
            let found = session(&head.headers).and_then(|id| sessions.borrow_mut().remove(id));
            Ok(body::empty(found.map_or(StatusCode::NOT_FOUND, |_| StatusCode::OK)))
        }
        _ => Ok(body::empty(StatusCode::METHOD_NOT_ALLOWED)),
    }
}

fn post(sessions: &Sessions, headers: &HeaderMap, message: &[u8]) -> io::Result<Response<Answer>> {
    let mut out = Vec::with_capacity(message.len() + 128);
    let Ok(kind) = answer(message, &mut out) else {
        return Ok(body::empty(StatusCode::BAD_REQUEST));
    };
    let known = session(headers).map(|id| sessions.borrow().contains_key(id));
    match (kind, known) {
        (Kind::Initialize, None) => {
            let id = body::session_id();
            let mut response = body::json(Bytes::from(out));
            response.headers_mut().insert(SESSION, id.parse().map_err(io::Error::other)?);
            sessions.borrow_mut().insert(id, None);
            Ok(response)
        }
        (Kind::Request, Some(true)) => Ok(body::json(Bytes::from(out))),
        (Kind::Notification, Some(true)) => Ok(body::empty(StatusCode::ACCEPTED)),
        (_, Some(false)) => Ok(body::empty(StatusCode::NOT_FOUND)),
        (Kind::Initialize, Some(true)) | (Kind::Request | Kind::Notification, None) => {
            Ok(body::empty(StatusCode::BAD_REQUEST))
        }
    }
}

pub(crate) fn session(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(message: &str, kind: Kind, expected: Value) {
        let mut out = Vec::new();
        assert_eq!(answer(message.as_bytes(), &mut out).expect("it can be read"), kind, "{message}");
        let answered = if out.is_empty() { Value::Null } else { serde_json::from_slice(&out).expect("it is JSON") };
        assert_eq!(answered, expected, "{message}");
    }

    #[test]
    fn argument_is_returned_as_it_was_written() {
        let mut out = Vec::new();
        let call = r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"echo","arguments":{"text":"\u0041\n"}}}"#;
        answer(call.as_bytes(), &mut out).expect("it can be read");
        let expected =
            r#"{"jsonrpc":"2.0","id":"a","result":{"content":[{"type":"text","text":"\u0041\n"}],"isError":false}}"#;
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn every_message_has_the_answer_of_its_kind() {
        check(r#"{"id":1,"method":"ping"}"#, Kind::Request, json!({"jsonrpc":"2.0","id":1,"result":{}}));
        check(r#"{"method":"notifications/initialized"}"#, Kind::Notification, Value::Null);
        check(r#"{"id":1,"result":{}}"#, Kind::Notification, Value::Null);
        let tools: Value = serde_json::from_str(TOOLS).expect("it is JSON");
        check(r#"{"id":2,"method":"tools/list"}"#, Kind::Request, json!({"jsonrpc":"2.0","id":2,"result":tools}));
        let error = |code: i32, message: &str| json!({"jsonrpc":"2.0","id":3,"error":{"code":code,"message":message}});
        check(r#"{"id":3,"method":"x"}"#, Kind::Request, error(-32601, "there is no such method"));
        check(r#"{"id":3,"method":"tools/call","params":{}}"#, Kind::Request, error(-32602, "echo wants `text`"));
    }

    #[test]
    fn requested_version_is_accepted() {
        let hello = json!({"id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}).to_string();
        let mut out = Vec::new();
        assert_eq!(answer(hello.as_bytes(), &mut out).expect("it can be read"), Kind::Initialize);
        let answered: Value = serde_json::from_slice(&out).expect("it is JSON");
        assert_eq!(answered["result"]["protocolVersion"], "2025-11-25");
    }

    #[test]
    fn sessions_are_opened_used_and_unknown() {
        let sessions = Sessions::default();
        let hello = br#"{"id":1,"method":"initialize"}"#;
        let opened = post(&sessions, &HeaderMap::new(), hello).expect("it is answered");
        let id = opened.headers().get(SESSION).expect("a session was opened").clone();
        let status = |id: Option<&str>, message: &[u8]| {
            let mut headers = HeaderMap::new();
            if let Some(id) = id {
                headers.insert(SESSION, id.parse().expect("it is a header"));
            }
            post(&sessions, &headers, message).expect("it is answered").status()
        };
        let ping = br#"{"id":2,"method":"ping"}"#;
        assert_eq!(status(id.to_str().ok(), ping), StatusCode::OK);
        assert_eq!(status(id.to_str().ok(), br#"{"method":"x"}"#), StatusCode::ACCEPTED);
        assert_eq!(status(Some("another"), ping), StatusCode::NOT_FOUND);
        assert_eq!(status(None, ping), StatusCode::BAD_REQUEST);
        assert_eq!(status(id.to_str().ok(), b"{"), StatusCode::BAD_REQUEST);
    }
}
