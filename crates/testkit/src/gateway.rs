//! A running `leash serve`.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal};

use crate::http::{self, Connection, Reply};
use crate::process::Handle;
use crate::scene::Scene;
use crate::sys::{self, Step};
use crate::wait;

/// A gateway; dropping it kills it.
#[derive(Debug)]
pub struct Gateway {
    child: Child,
    process: Handle,
    address: SocketAddr,
    said: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Gateway {
    /// Starts `leash serve -v --listen 127.0.0.1:0` with further arguments and waits until it listens.
    ///
    /// # Panics
    /// If it does not listen.
    pub fn start<W: AsRef<OsStr>>(scene: &Scene, words: impl IntoIterator<Item = W>) -> Self {
        Self::start_at(scene, "127.0.0.1:0", words)
    }

    /// The same with one stdio server called `x`.
    ///
    /// # Panics
    /// If it does not listen.
    pub fn single(scene: &Scene, options: &[&str], server: &[OsString]) -> Self {
        let options = ["--name", "x"].iter().chain(options).chain(&["--"]).map(OsString::from);
        Self::start(scene, options.chain(server.iter().cloned()))
    }

    /// The same with one HTTP server called `x`.
    ///
    /// # Panics
    /// If it does not listen.
    pub fn in_front_of(scene: &Scene, options: &[&str], url: &str) -> Self {
        Self::start(scene, ["--name", "x", "--url", url].iter().chain(options))
    }

    /// The same at a given address.
    ///
    /// # Panics
    /// If it does not listen.
    pub fn start_at<W: AsRef<OsStr>>(scene: &Scene, listen: &str, words: impl IntoIterator<Item = W>) -> Self {
        Self::prepared(scene, listen, Vec::new(), words)
    }

    /// The same, with these steps before exec.
    ///
    /// # Panics
    /// If it does not listen.
    pub fn prepared<W: AsRef<OsStr>>(
        scene: &Scene,
        listen: &str,
        steps: Vec<Step>,
        words: impl IntoIterator<Item = W>,
    ) -> Self {
        Self::attempt(scene, listen, steps, words).unwrap_or_else(|why| panic!("{why}"))
    }

    /// The same for a start that may fail. The error is its stderr output.
    pub fn attempt<W: AsRef<OsStr>>(
        scene: &Scene,
        listen: &str,
        steps: Vec<Step>,
        words: impl IntoIterator<Item = W>,
    ) -> Result<Self, String> {
        let mut command = scene.leash(["serve", "-v", "--listen", listen]);
        sys::prepare(&mut command, steps);
        command.args(words).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("cannot start leash serve: {error}"))?;
        let said = Arc::new(Mutex::new(String::new()));
        let stderr = child.stderr.take().expect("stderr is piped");
        let reader = std::thread::spawn({
            let said = Arc::clone(&said);
            move || {
                for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                    let mut said = said.lock().expect("no thread panics while it holds the lock");
                    said.push_str(&String::from_utf8_lossy(&line));
                    said.push('\n');
                }
            }
        });
        let heard = || said.lock().expect("no thread panics while it holds the lock").clone();
        let address = wait::within(wait::LIMIT, || {
            if !matches!(child.try_wait(), Ok(None)) {
                return Some(Err(format!("leash serve left: {}", heard())));
            }
            heard().lines().find_map(|line| line.strip_prefix("listening on http://")?.parse().ok()).map(Ok)
        });
        let failed = |why: String| {
            let _ = child.kill();
            let _ = child.wait();
            why
        };
        let address =
            address.unwrap_or_else(|| Err(format!("leash serve does not listen: {}", heard()))).map_err(failed)?;
        let pid = Pid::from_child(&child);
        let process = Handle::open(pid, |_| true).ok_or("leash serve is gone again")?;
        Ok(Self { child, process, address, said, reader: Some(reader) })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its pid.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The URL of a server.
    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}/mcp", self.address)
    }

    /// Its stderr output so far.
    pub fn said(&self) -> String {
        self.said.lock().expect("no thread panics while it holds the lock").clone()
    }

    /// A new connection.
    pub fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// Sends a request on a new connection and returns the answer.
    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        self.connect().ask(method, path, headers, body)
    }

    /// Posts a JSON-RPC message, with a session id if one is given, on a new connection.
    pub fn post(&self, name: &str, session: Option<&str>, body: &str) -> Reply {
        post(&mut self.connect(), name, session, body)
    }

    /// The number of sessions of a server, including those that are ending.
    pub fn sessions(&self, name: &str) -> f64 {
        let state = |state: &str| self.metric(&format!("leash_sessions{{server=\"{name}\",state=\"{state}\"}}"));
        state("live").unwrap_or_default() + state("ending").unwrap_or_default()
    }

    /// The number of sessions of all servers, including those that are ending. `None` if the metrics cannot be read.
    pub fn all_sessions(&self) -> Option<u64> {
        let mut connection = Connection::attempt(self.address).ok()?;
        connection.send("GET", "/metrics", &[], b"").ok()?;
        let page = connection.reply().ok().filter(|page| page.status == 200)?.text();
        // Without sessions there are no lines. The TYPE line shows that the page is complete enough to have them.
        page.lines().find(|line| *line == "# TYPE leash_sessions gauge")?;
        let lines = page.lines().filter(|line| line.starts_with("leash_sessions{"));
        lines.map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
    }

    /// Waits until a metric has this value. The gateway counts an event after it happened, so the value may lag.
    pub fn wait_metric(&self, line: &str, value: f64) {
        let reached = wait::within(wait::LIMIT, || (self.metric(line) == Some(value)).then_some(()));
        assert!(reached.is_some(), "{line} is {:?}, not {value}: {}", self.metric(line), self.said());
    }

    /// Waits until a server has no session.
    pub fn wait_empty(&self, name: &str) {
        let empty = wait::within(wait::LIMIT, || (self.sessions(name) == 0.0).then_some(()));
        assert!(empty.is_some(), "{} sessions are left: {}", self.sessions(name), self.said());
    }

    /// Sends SIGTERM, and waits until it has exited.
    ///
    /// # Panics
    /// If it does not exit with code 0.
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        assert_eq!(self.wait(), Some(0), "{}", self.said());
    }

    /// The memory that it uses, in bytes.
    pub fn memory(&self) -> u64 {
        memory(self.pid())
    }

    /// The number of its open descriptors.
    ///
    /// # Panics
    /// If it has exited.
    pub fn descriptors(&self) -> usize {
        let path = format!("/proc/{}/fd", self.pid().as_raw_nonzero());
        std::fs::read_dir(path).expect("the gateway is gone").count()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal).expect("the gateway is gone");
    }

    /// True if it has not exited.
    pub fn is_alive(&self) -> bool {
        self.process.is_alive()
    }

    /// Waits for its exit. Returns false after `limit`.
    pub fn wait_gone(&self, limit: std::time::Duration) -> bool {
        self.process.wait_gone(limit)
    }

    /// Waits for its exit, and returns the exit code.
    pub fn wait(&mut self) -> Option<i32> {
        let status = wait::until("the end of leash serve", || self.child.try_wait().expect("it is our child"));
        if let Some(reader) = self.reader.take() {
            // Its servers inherited stderr, which may stay open as long as one of them lives, so the reader is not
            // joined.
            drop(reader);
        }
        status.code()
    }

    /// The value of the metrics line with this beginning.
    pub fn metric(&self, line: &str) -> Option<f64> {
        let page = self.ask("GET", "/metrics", &[], b"").text();
        page.lines().find_map(|known| known.strip_prefix(line)?.trim().parse().ok())
    }
}

/// The private memory of a process in bytes, as the kernel counts it.
///
/// # Panics
/// If the process has exited.
pub fn memory(pid: Pid) -> u64 {
    let path = format!("/proc/{}/smaps_rollup", pid.as_raw_nonzero());
    let text = std::fs::read_to_string(path).expect("the process has exited, or belongs to another user");
    let kib =
        text.lines().find_map(|line| line.strip_prefix("Private_Dirty:")?.strip_suffix("kB")?.trim().parse().ok());
    kib.map(|kib: u64| kib * 1024).expect("the kernel counts it")
}

/// Posts a JSON-RPC message, with a session id if one is given.
pub fn post(connection: &mut Connection, name: &str, session: Option<&str>, body: &str) -> Reply {
    let mut headers = http::POST.to_vec();
    headers.extend(session.map(|session| ("mcp-session-id", session)));
    connection.ask("POST", &format!("/{name}/mcp"), &headers, body.as_bytes())
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
