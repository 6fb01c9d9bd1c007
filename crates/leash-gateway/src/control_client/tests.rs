//! Tests against a fake daemon with scripted answers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::{os::unix::net::UnixListener, path::Path, thread::JoinHandle};

use super::*;
use leash_model::view::OwnerView;
use testkit::Scratch;

/// Answers one request; returns its first line and its body.
fn daemon(socket: &Path, answer: &'static str) -> JoinHandle<(String, String)> {
    let listener = UnixListener::bind(socket).expect("a socket");
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a caller");
        let mut reader = BufReader::new(stream);
        let (mut first, mut length) = (String::new(), 0);
        reader.read_line(&mut first).expect("a request");
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).expect("a header");
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.parse().expect("a number");
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a body");
        reader.get_mut().write_all(answer.as_bytes()).expect("it reads");
        (first.trim_end().to_owned(), String::from_utf8(body).expect("text"))
    })
}

#[test]
fn call_returns_status_and_body() {
    let dir = Scratch::new();
    let socket = socket_path(&dir);
    let served = daemon(&socket, "HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}");
    let answer = call(&socket, "POST", "/v1/sessions?x=y", Some(b"{\"a\":1}")).expect("an answer");
    assert_eq!(answer, (202, b"{}".to_vec()));
    let (first, body) = served.join().expect("it was served");
    assert_eq!((first.as_str(), body.as_str()), ("POST /v1/sessions?x=y HTTP/1.1", "{\"a\":1}"));
}

#[test]
fn without_a_daemon_there_are_no_sessions() {
    let dir = Scratch::new();
    let socket = socket_path(&dir);
    assert!(matches!(call(&socket, "GET", "/v1/version", None), Err(ControlClientError::NoDaemon(_))));
    // A socket that a killed daemon left behind.
    drop(UnixListener::bind(&socket).expect("a socket"));
    assert!(matches!(call(&socket, "GET", "/v1/version", None), Err(ControlClientError::NoDaemon(_))));
    assert!(matches!(end_session(&socket, "job-1", false), Ok(None)));
    assert!(matches!(sessions(&socket).as_deref(), Ok([])));
    assert!(matches!(servers(&socket, "job-1"), Err(ControlClientError::NoDaemon(_))));
}

#[test]
fn fields_of_a_later_version_are_ignored() {
    let dir = Scratch::new();
    let socket = socket_path(&dir);
    let served = daemon(
        &socket,
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n\
         {\"cursor\":7,\"sessions\":[{\"id\":\"job-1\",\"state\":\"live\",\"owner\":{\"kind\":\"pid\",\"pid\":5,\"host\":\"a\"},\
         \"labels\":{},\"startedAtMs\":1,\"idleForMs\":0,\"mood\":\"fine\",\"servers\":[]}]}",
    );
    let [session] = &sessions(&socket).expect("a list")[..] else { panic!("one session") };
    assert_eq!((session.id.as_str(), &session.owner), ("job-1", &OwnerView::Pid { pid: 5 }));
    served.join().expect("it was served");
}

#[test]
fn a_list_that_is_not_understood_is_an_error() {
    let dir = Scratch::new();
    let socket = socket_path(&dir);
    let served = daemon(&socket, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
    assert!(matches!(sessions(&socket), Err(ControlClientError::Malformed(_))));
    served.join().expect("it was served");
}

#[test]
fn ending_an_unknown_session_returns_none() {
    let dir = Scratch::new();
    let socket = socket_path(&dir);
    let served = daemon(&socket, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    assert!(matches!(end_session(&socket, "job-1", true), Ok(None)));
    assert_eq!(served.join().expect("it was served").0, "DELETE /v1/sessions/job-1?force=true HTTP/1.1");
}

#[test]
fn a_text_that_is_not_an_id_is_not_sent() {
    let dir = Scratch::new();
    let socket = socket_path(&dir);
    let _listener = UnixListener::bind(&socket).expect("a socket without answers");
    for word in ["", "../x", "a/b", "a?force=true", "a b"] {
        assert!(matches!(end_session(&socket, word, false), Ok(None)), "{word}");
    }
}

#[test]
fn a_problem_becomes_an_error_with_its_detail() {
    let dir = Scratch::new();
    let socket = socket_path(&dir);
    let served = daemon(
        &socket,
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nConnection: close\r\n\r\n\
         {\"type\":\"urn:leash:problem:draining\",\"title\":\"Draining\",\"detail\":\"it stops\",\"hint\":\"start another\"}",
    );
    let error = sessions(&socket).expect_err("a refusal");
    let ControlClientError::Refused { status, problem, detail, hint } = error else { panic!("{error}") };
    assert_eq!((status, problem.as_str(), detail.as_str()), (503, "draining", "it stops"));
    assert_eq!(hint.as_deref(), Some("start another"));
    served.join().expect("it was served");
}

#[test]
fn an_answer_that_breaks_off_is_an_error() {
    let dir = Scratch::new();
    let socket = socket_path(&dir);
    let served = daemon(&socket, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}");
    assert!(matches!(call(&socket, "GET", "/v1/version", None), Err(ControlClientError::Broken(_))));
    served.join().expect("it was served");
}

#[test]
fn servers_have_secret_addresses() {
    let dir = Scratch::new();
    let socket = socket_path(&dir);
    let served = daemon(
        &socket,
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n\
         {\"id\":\"job-1\",\"state\":\"live\",\"owner\":{\"kind\":\"none\"},\"labels\":{},\"startedAtMs\":1,\"idleForMs\":0,\
         \"servers\":[{\"name\":\"files\",\"kind\":\"stdio\",\"url\":\"http://127.0.0.1:1/s/hush/files/mcp\",\
         \"command\":\"leash\",\"args\":[],\"holdings\":[],\"inFlight\":0}]}",
    );
    let found = servers(&socket, "job-1").expect("a session");
    assert!(!format!("{found:?}").contains("hush"));
    assert_eq!((found[0].0.as_str(), found[0].1.expose()), ("files", "http://127.0.0.1:1/s/hush/files/mcp"));
    served.join().expect("it was served");
}

#[test]
fn a_session_that_has_ended_has_no_servers() {
    let dir = Scratch::new();
    let socket = socket_path(&dir);
    let answer = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n\
        {\"id\":\"job-1\",\"state\":\"ended\",\"owner\":{\"kind\":\"none\"},\"labels\":{},\"startedAtMs\":1,\"idleForMs\":0,\
        \"servers\":[]}";
    let served = daemon(&socket, answer);
    assert!(matches!(servers(&socket, "job-1"), Err(ControlClientError::Refused { status: 409, .. })));
    served.join().expect("it was served");
}

const SHORT: Duration = Duration::from_millis(50);

#[test]
fn call_gives_up_on_a_silent_daemon() {
    let dir = Scratch::new();
    let socket = socket_path(&dir);
    let _stuck = UnixListener::bind(&socket).expect("a socket without an accept loop");
    let request = request("DELETE", "/v1/sessions/job-1", None).expect("a request");
    assert!(matches!(call_within(&socket, request, SHORT), Err(ControlClientError::Silent(_))));
}

#[test]
fn call_waits_for_a_daemon_that_answers_probes() {
    let dir = Scratch::new();
    let socket = socket_path(&dir);
    let listener = UnixListener::bind(&socket).expect("a socket");
    let daemon = std::thread::spawn(move || {
        let (mut slow, _) = listener.accept().expect("a caller");
        // The daemon answers the request only after two probes.
        for _ in 0..2 {
            let (mut probe, _) = listener.accept().expect("a probe");
            probe.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").expect("it reads");
        }
        slow.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").expect("it still waits");
    });
    let request = request("DELETE", "/v1/sessions/job-1", None).expect("a request");
    assert_eq!(call_within(&socket, request, SHORT).expect("an answer"), (200, b"done".to_vec()));
    daemon.join().expect("it was asked");
}

#[test]
fn a_path_that_is_too_long_is_an_error() {
    let path = Path::new("/tmp").join("x".repeat(limits::SOCKET_PATH));
    assert!(matches!(call(&path, "GET", "/v1/version", None), Err(ControlClientError::TooLong(_))));
}
