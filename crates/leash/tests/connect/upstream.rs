//! A scripted upstream that records its requests. It uses blocking sockets and threads: the script controls every byte,
//! and no library repairs a fault of leash.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use serde_json::Value;
use testkit::wait::{Deadline, LIMIT};

/// A request as it arrived.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {} {}", self.method, self.path, self.header("mcp-session-id"), self.text())
    }
}

impl Seen {
    /// A header; empty if it is missing.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str())
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// A field of the message in the body.
    pub(crate) fn field(&self, name: &str) -> Value {
        serde_json::from_slice::<Value>(&self.body).map(|message| message[name].clone()).unwrap_or_default()
    }

    /// The method of the message in the body.
    pub(crate) fn rpc(&self) -> String {
        self.field("method").as_str().unwrap_or_default().to_owned()
    }
}

/// The side of a connection on which a script answers.
pub(crate) struct Talk {
    stream: TcpStream,
    /// The connection is not used for another request.
    cut: bool,
}

impl Talk {
    /// A whole answer.
    pub(crate) fn answer(&mut self, status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) {
        let body = body.as_ref();
        let mut head = format!("HTTP/1.1 {status} Whatever\r\nContent-Length: {}\r\n", body.len());
        headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        self.raw(&[head.as_bytes(), b"\r\n", body].concat());
    }

    /// 200 with JSON.
    pub(crate) fn json(&mut self, body: impl AsRef<[u8]>) {
        self.answer(200, &[("Content-Type", "application/json")], body);
    }

    /// 202.
    pub(crate) fn accept(&mut self) {
        self.answer(202, &[], "");
    }

    /// 200 with an event stream.
    pub(crate) fn begin_stream(&mut self) {
        self.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
    }

    /// Bytes of the stream.
    pub(crate) fn event(&mut self, text: &str) {
        self.raw(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes());
    }

    /// The proper end of the stream.
    pub(crate) fn end_stream(&mut self) {
        self.raw(b"0\r\n\r\n");
    }

    /// Breaks the connection off.
    pub(crate) fn cut(&mut self) {
        self.cut = true;
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Sends any bytes.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        // Some scripts wait until the client has disconnected, so an error is fine.
        let _ = self.stream.write_all(bytes);
    }

    /// Waits until the client has closed the connection.
    pub(crate) fn wait_gone(&mut self) {
        let _ = self.stream.set_read_timeout(Some(LIMIT));
        let gone = matches!(self.stream.read(&mut [0; 1]), Ok(0) | Err(_));
        self.cut = true;
        assert!(gone, "the client sends more");
    }
}

type Script = Box<dyn Fn(&Seen, &mut Talk) + Send + Sync>;

struct Shared {
    script: Script,
    seen: Mutex<Vec<Seen>>,
    changed: Condvar,
    streams: Mutex<Vec<TcpStream>>,
    over: AtomicBool,
}

/// The upstream. Dropping it closes all its connections.
pub(crate) struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Upstream {
    /// Starts one on a free port.
    pub(crate) fn start(script: impl Fn(&Seen, &mut Talk) + Send + Sync + 'static) -> Upstream {
        Upstream::start_at((Ipv4Addr::LOCALHOST, 0).into(), script)
    }

    /// Starts one at a given address.
    pub(crate) fn start_at(address: SocketAddr, script: impl Fn(&Seen, &mut Talk) + Send + Sync + 'static) -> Upstream {
        let listener = TcpListener::bind(address).expect("cannot listen");
        let shared = Arc::new(Shared {
            script: Box::new(script),
            seen: Mutex::default(),
            changed: Condvar::new(),
            streams: Mutex::default(),
            over: AtomicBool::new(false),
        });
        let address = listener.local_addr().expect("a listener has an address");
        let accepting = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || accept(&accepting, &listener));
        Upstream { address, shared, acceptor: Some(acceptor) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// All requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        lock(&self.shared.seen).clone()
    }

    /// The requests of one HTTP method.
    pub(crate) fn of(&self, method: &str) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.method == method).collect()
    }

    /// Waits until `wanted` finds something in the requests.
    ///
    /// # Panics
    /// If it does not in time.
    pub(crate) fn wait<T>(&self, what: &str, wanted: impl Fn(&[Seen]) -> Option<T>) -> T {
        let deadline = Deadline::after(LIMIT);
        let mut seen = lock(&self.shared.seen);
        loop {
            if let Some(found) = wanted(&seen) {
                return found;
            }
            assert!(!deadline.is_over(), "waited in vain for {what}; seen: {seen:#?}");
            seen = self.shared.changed.wait_timeout(seen, deadline.left()).expect("no thread panics").0;
        }
    }

    /// Waits until this many requests of a method have arrived.
    pub(crate) fn wait_count(&self, method: &str, count: usize) {
        let counted = |seen: &[Seen]| seen.iter().filter(|seen| seen.method == method).count() >= count;
        self.wait(&format!("{count} {method}"), |seen| counted(seen).then_some(()));
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // Wakes the accept loop.
        let _ = TcpStream::connect(self.address);
        lock(&self.shared.streams).drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    while let Ok((stream, _)) = listener.accept() {
        if shared.over.load(Ordering::SeqCst) {
            return;
        }
        let _ = stream.set_nodelay(true);
        lock(&shared.streams).extend(stream.try_clone());
        let shared = Arc::clone(shared);
        std::thread::spawn(move || serve(&shared, stream));
    }
}

fn serve(shared: &Shared, stream: TcpStream) {
    let Ok(answers) = stream.try_clone() else { return };
    let (mut reader, mut talk) = (BufReader::new(stream), Talk { stream: answers, cut: false });
    while let Some(seen) = read(&mut reader) {
        lock(&shared.seen).push(seen.clone());
        shared.changed.notify_all();
        (shared.script)(&seen, &mut talk);
        if talk.cut || shared.over.load(Ordering::SeqCst) {
            return;
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Seen> {
    let line = |reader: &mut BufReader<TcpStream>| {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        line.strip_suffix("\r\n").map(str::to_owned)
    };
    let first = line(reader)?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let header = line(reader)?;
        match header.split_once(':') {
            Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
            None => break,
        }
    }
    let mut seen = Seen { method, path, headers, body: Vec::new() };
    seen.body = vec![0; seen.header("content-length").parse().unwrap_or(0)];
    reader.read_exact(&mut seen.body).ok()?;
    Some(seen)
}

/// The sessions of a well-behaved server.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<(u32, BTreeSet<String>)>);

impl Sessions {
    /// Forgets all of them, as a restarted server does.
    pub(crate) fn forget(&self) {
        lock(&self.0).1.clear();
    }

    /// The open sessions.
    pub(crate) fn open(&self) -> Vec<String> {
        lock(&self.0).1.iter().cloned().collect()
    }

    /// Answers like a server of 2025-11-25 without its own stream.
    pub(crate) fn serve(&self, seen: &Seen, talk: &mut Talk) {
        if seen.rpc() == "initialize" {
            let session = {
                let mut sessions = lock(&self.0);
                sessions.0 += 1;
                let session = format!("session-{}", sessions.0);
                sessions.1.insert(session.clone());
                session
            };
            return talk.answer(
                200,
                &[("Content-Type", "application/json"), ("Mcp-Session-Id", &session)],
                initialized(&seen.field("id")),
            );
        }
        let session = seen.header("mcp-session-id");
        if !lock(&self.0).1.contains(session) {
            let error = r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}"#;
            return talk.answer(404, &[("Content-Type", "application/json")], error);
        }
        match (seen.method.as_str(), seen.field("id"), seen.field("method")) {
            ("DELETE", ..) => {
                lock(&self.0).1.remove(session);
                talk.answer(200, &[], "");
            }
            ("POST", Value::Null, _) | ("POST", _, Value::Null) => talk.accept(),
            ("POST", id, _) => talk.json(result(&id, session)),
            _ => talk.answer(405, &[], ""),
        }
    }
}

/// The answer to `initialize`.
pub(crate) fn initialized(id: &Value) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":"2025-11-25","capabilities":{{}},"serverInfo":{{"name":"scripted","version":"1"}}}}}}"#
    )
}

/// The answer to any other request: the session that it was sent in.
pub(crate) fn result(id: &Value, session: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"session":"{session}"}}}}"#)
}
