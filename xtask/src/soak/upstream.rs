//! The HTTP server behind the gateway: the echo of the benches, with a witness that sees every session begin and end.
//! It runs in this process, so that its counters can be read directly.

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};

use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use testkit::wait::LIMIT;

use crate::bench::roles::body::{Answer, SESSION};
use crate::bench::roles::echo::{self, Sessions};
use crate::bench::roles::server;
use crate::step::{Failure, Outcome};

/// A running server; it ends with this process.
#[derive(Debug)]
pub(crate) struct Upstream {
    address: SocketAddr,
    witness: Arc<Mutex<Witness>>,
}

/// The sessions and streams that were seen on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Witness {
    /// Sessions that were opened.
    pub(crate) opened: u64,
    /// Sessions that a DELETE ended.
    pub(crate) deleted: u64,
    /// DELETEs of unknown sessions: repeated ones, or of a session that never existed.
    pub(crate) astray: u64,
    /// Event streams that were opened.
    pub(crate) streams: u64,
    open: HashSet<String>,
}

impl Witness {
    /// Sessions that have not ended.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    fn saw(&mut self, method: &Method, asked: Option<&str>, status: StatusCode, given: Option<&str>) {
        if let Some(given) = given {
            self.opened += 1;
            self.open.insert(given.to_owned());
        }
        match (method, status.is_success()) {
            (&Method::DELETE, true) if asked.is_some_and(|asked| self.open.remove(asked)) => self.deleted += 1,
            (&Method::DELETE, _) => self.astray += 1,
            (&Method::GET, true) => self.streams += 1,
            _ => {}
        }
    }
}

impl Upstream {
    /// Starts it on a free port.
    pub(crate) fn start() -> Outcome<Self> {
        let witness = Arc::new(Mutex::new(Witness::default()));
        let (tell, hear) = mpsc::channel();
        let seen = Arc::clone(&witness);
        std::thread::spawn(move || {
            let served = server::alone(async {
                let listener = server::listen((Ipv4Addr::LOCALHOST, 0).into())?;
                let _ = tell.send(listener.local_addr());
                let sessions = Rc::new(Sessions::default());
                server::serve(listener, move |request| answer(Rc::clone(&sessions), Arc::clone(&seen), request)).await
            });
            if let Err(error) = served {
                crate::step::say("Failed", format!("the upstream server: {error}"));
            }
        });
        let address = hear.recv_timeout(LIMIT).map_err(|_| Failure::new("the upstream server does not listen"))?;
        let failed = |error: io::Error| Failure::new(format!("the upstream server does not listen: {error}"));
        Ok(Self { address: address.map_err(failed)?, witness })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// The counters so far.
    pub(crate) fn witness(&self) -> Witness {
        held(&self.witness).clone()
    }
}

async fn answer(
    sessions: Rc<Sessions>,
    witness: Arc<Mutex<Witness>>,
    request: Request<Incoming>,
) -> io::Result<Response<Answer>> {
    let method = request.method().clone();
    let asked = echo::session(request.headers()).map(str::to_owned);
    let response = echo::respond(sessions, request).await?;
    let given = response.headers().get(SESSION).and_then(|id| id.to_str().ok());
    held(&witness).saw(&method, asked.as_deref(), response.status(), given);
    Ok(response)
}

fn held(witness: &Mutex<Witness>) -> MutexGuard<'_, Witness> {
    witness.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use testkit::http::{Connection, POST, initialize};

    use super::*;

    #[test]
    fn every_session_is_seen_to_begin_and_to_end_once() {
        let upstream = Upstream::start().expect("there is a port");
        let mut connection = Connection::open(upstream.address);
        let opened = connection.ask("POST", "/mcp", &POST, initialize("2025-06-18").as_bytes());
        let id = opened.header("mcp-session-id").expect("a session").to_owned();
        let seen = upstream.witness();
        assert_eq!((seen.opened, seen.deleted, seen.open()), (1, 0, 1));
        let headers = [("mcp-session-id", id.as_str())];
        let ends: Vec<u16> = (0..2).map(|_| connection.ask("DELETE", "/mcp", &headers, b"").status).collect();
        assert_eq!(ends, [200, 404]);
        let seen = upstream.witness();
        assert_eq!((seen.opened, seen.deleted, seen.astray, seen.open()), (1, 1, 1, 0));
    }
}
