//! An HTTP server that a test controls byte for byte: no library repairs or refuses its output.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use crate::wait;

/// A request as it arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The method.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// The headers: names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body without its transfer coding.
    pub body: Vec<u8>,
}

impl Seen {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

type Script = dyn Fn(&Seen, &mut Wire) -> io::Result<()> + Send + Sync;

struct State {
    script: Box<Script>,
    seen: Mutex<Vec<Seen>>,
    open: Mutex<Vec<(TcpStream, JoinHandle<()>)>>,
    stopped: AtomicBool,
}

/// The server. Dropping it closes all its connections.
pub struct Upstream {
    address: SocketAddr,
    state: Arc<State>,
    accepting: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Upstream {
    /// Starts a server on loopback. The script answers each request on the wire; an error of it ends the connection.
    ///
    /// # Panics
    /// If there is no free port.
    pub fn start(script: impl Fn(&Seen, &mut Wire) -> io::Result<()> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is no free port");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(State {
            script: Box::new(script),
            seen: Mutex::default(),
            open: Mutex::default(),
            stopped: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        let accepting = std::thread::spawn(move || accept(&listener, &shared));
        Self { address, state, accepting: Some(accepting) }
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        held(&self.state.seen).clone()
    }

    /// The requests of one method.
    pub fn of(&self, method: &str) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.method == method).collect()
    }

    /// Forgets the requests so far.
    pub fn forget(&self) {
        held(&self.state.seen).clear();
    }

    /// Waits for the next request that the test has not taken.
    ///
    /// # Panics
    /// If none arrives in time.
    pub fn take(&self) -> Seen {
        wait::until("a request upstream", || {
            let mut seen = held(&self.state.seen);
            (!seen.is_empty()).then(|| seen.remove(0))
        })
    }

    /// The number of open connections.
    pub fn connections(&self) -> usize {
        held(&self.state.open).iter().filter(|(_, thread)| !thread.is_finished()).count()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::SeqCst);
        // A connection wakes the accept loop, so that it sees the flag.
        drop(TcpStream::connect(self.address));
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        for (stream, thread) in std::mem::take(&mut *held(&self.state.open)) {
            let _ = stream.shutdown(Shutdown::Both);
            let _ = thread.join();
        }
    }
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    // A script that panicked fails its test by its missing answer. The list itself is never half changed.
    lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn accept(listener: &TcpListener, state: &Arc<State>) {
    for stream in listener.incoming() {
        if state.stopped.load(Ordering::SeqCst) {
            return;
        }
        let Ok((stream, kept)) = stream.and_then(|stream| stream.try_clone().map(|kept| (stream, kept))) else {
            continue;
        };
        let shared = Arc::clone(state);
        let thread = std::thread::spawn(move || serve(stream, &shared));
        let mut open = held(&state.open);
        open.retain(|(_, thread)| !thread.is_finished());
        open.push((kept, thread));
    }
}

fn serve(stream: TcpStream, state: &State) {
    let _ = stream.set_nodelay(true);
    let mut wire = Wire { stream: BufReader::new(stream) };
    while let Ok(Some(seen)) = wire.request() {
        held(&state.seen).push(seen.clone());
        if (state.script)(&seen, &mut wire).is_err() {
            break;
        }
    }
    // The list of open connections has a copy of the socket, which would keep it open.
    let _ = wire.stream.get_ref().shutdown(Shutdown::Both);
}

/// A connection to the client, on which the test can write any bytes.
#[derive(Debug)]
pub struct Wire {
    stream: BufReader<TcpStream>,
}

impl Wire {
    /// Sends bytes unchanged.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Sends a whole answer with its length.
    pub fn answer(&mut self, status: &str, headers: &[(&str, &str)], body: &[u8]) -> io::Result<()> {
        let mut whole = head(status, headers);
        whole.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
        whole.extend_from_slice(body);
        self.send(&whole)
    }

    /// Sends the head of an answer in chunks.
    pub fn begin(&mut self, status: &str, headers: &[(&str, &str)]) -> io::Result<()> {
        let mut whole = head(status, headers);
        whole.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
        self.send(&whole)
    }

    /// Sends one chunk. Sends nothing if it is empty, because an empty chunk ends the answer.
    pub fn chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let size = format!("{:x}\r\n", bytes.len());
        self.send(&[size.as_bytes(), bytes, b"\r\n"].concat())
    }

    /// Sends the end of an answer in chunks.
    pub fn finish(&mut self) -> io::Result<()> {
        self.send(b"0\r\n\r\n")
    }

    /// Sends nothing more, and waits until the client closes the connection.
    pub fn hold(&mut self) -> io::Result<()> {
        while self.stream.get_mut().read(&mut [0; 4096])? > 0 {}
        Err(io::ErrorKind::ConnectionAborted.into())
    }

    /// Closes the connection.
    pub fn close(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::ConnectionAborted.into())
    }

    /// Resets the connection.
    pub fn reset(&mut self) -> io::Result<()> {
        rustix::net::connect_unspec(self.stream.get_ref())?;
        self.close()
    }

    /// The next request; `None` at the end of the connection.
    fn request(&mut self) -> io::Result<Option<Seen>> {
        let first = self.line()?;
        let mut words = first.split(' ').map(str::to_owned);
        let (Some(method), Some(path)) = (words.next(), words.next()) else { return Ok(None) };
        let mut seen = Seen { method, path, ..Seen::default() };
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            seen.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        if let Some(length) = seen.header("content-length").and_then(|length| length.parse::<usize>().ok()) {
            seen.body.resize(length, 0);
            self.stream.read_exact(&mut seen.body)?;
        } else if seen.header("transfer-encoding").is_some() {
            loop {
                let size = usize::from_str_radix(&self.line()?, 16).map_err(io::Error::other)?;
                let mut chunk = vec![0; size];
                self.stream.read_exact(&mut chunk)?;
                seen.body.extend(chunk);
                self.line()?;
                if size == 0 {
                    break;
                }
            }
        }
        Ok(Some(seen))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }
}

fn head(status: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {status}\r\n{headers}").into_bytes()
}
