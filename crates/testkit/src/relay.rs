//! A network that fails on command: a TCP relay in front of a server, whose connections can be cut or silenced.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

/// The relay. Dropping it ends all its connections.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    network: Arc<Network>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Network {
    target: Mutex<SocketAddr>,
    is_over: AtomicBool,
    is_silent: AtomicBool,
    is_down: AtomicBool,
    /// The number of chunks that passed.
    passed: AtomicU64,
    connections: Mutex<Vec<Connection>>,
}

#[derive(Debug)]
struct Connection {
    ends: [TcpStream; 2],
    pumps: [JoinHandle<()>; 2],
    /// The value of `passed` at the last use of this connection.
    used: Arc<AtomicU64>,
}

impl Relay {
    /// Listens on a free port of 127.0.0.1 and relays connections to `target`.
    pub fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let network = Arc::new(Network {
            target: Mutex::new(target),
            is_over: AtomicBool::new(false),
            is_silent: AtomicBool::new(false),
            is_down: AtomicBool::new(false),
            passed: AtomicU64::new(0),
            connections: Mutex::default(),
        });
        let acceptor = thread::spawn({
            let network = Arc::clone(&network);
            move || network.accept(&listener)
        });
        Self { address, network, acceptor: Some(acceptor) }
    }

    /// The address of the relay.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `url` with this relay in front of its server.
    pub fn url(&self, url: &str) -> String {
        url.replace(&self.network.target().to_string(), &self.address.to_string())
    }

    /// Directs new connections to `target` from now on.
    pub fn aim(&self, target: SocketAddr) {
        *self.network.target.lock().expect("no thread panics while it holds the lock") = target;
    }

    /// Closes all connections, and returns their number. New ones are relayed as before.
    pub fn cut(&self) -> usize {
        self.network.cut()
    }

    /// Closes all connections, and each new one at once, until [`Relay::up`].
    pub fn down(&self) {
        self.network.is_down.store(true, Ordering::Relaxed);
        self.network.cut();
    }

    /// Accepts connections again.
    pub fn up(&self) {
        self.network.is_down.store(false, Ordering::Relaxed);
    }

    /// Drops all bytes from now on, even the end of a connection: as if the other machine had lost its power.
    pub fn silence(&self) {
        self.network.is_silent.store(true, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.network.is_over.store(true, Ordering::Relaxed);
        // A connection wakes the accept loop, so that it sees the flag.
        drop(TcpStream::connect(self.address));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        self.network.cut();
    }
}

impl Network {
    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            if self.is_down.load(Ordering::Relaxed) {
                continue;
            }
            // A client that has left again and a server that is not there have the same effect: no connection.
            let pair = client.and_then(|client| Ok([client, TcpStream::connect(self.target())?]));
            if let Ok(connection) = pair.and_then(|ends| self.connect(ends)) {
                self.connections().push(connection);
                // `down` may have been called meanwhile.
                if self.is_down.load(Ordering::Relaxed) {
                    self.cut();
                }
            }
        }
    }

    fn connect(self: &Arc<Self>, ends: [TcpStream; 2]) -> std::io::Result<Connection> {
        let [client, server] = &ends;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let used = Arc::new(AtomicU64::new(0));
        let pump = |from: &TcpStream, to: &TcpStream| -> std::io::Result<JoinHandle<()>> {
            let (network, used, from, to) = (Arc::clone(self), Arc::clone(&used), from.try_clone()?, to.try_clone()?);
            Ok(thread::spawn(move || network.pump(from, to, &used)))
        };
        Ok(Connection { pumps: [pump(client, server)?, pump(server, client)?], ends, used })
    }

    fn pump(&self, mut from: TcpStream, mut to: TcpStream, used: &AtomicU64) {
        let mut buffer = [0; 16 << 10];
        while let Ok(got @ 1..) = from.read(&mut buffer) {
            used.store(self.passed.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
            let is_lost = self.is_silent.load(Ordering::Relaxed);
            if !is_lost && to.write_all(&buffer[..got]).is_err() {
                break;
            }
        }
        if !self.is_silent.load(Ordering::Relaxed) {
            let _ = to.shutdown(Shutdown::Write);
        }
    }

    fn cut(&self) -> usize {
        let mut connections = std::mem::take(&mut *self.connections());
        let open = connections.iter().filter(|connection| connection.is_open()).count();
        // Idle connections first: a client that notices the end of a call might use one of them at once.
        connections.sort_by_key(|connection| connection.used.load(Ordering::Relaxed));
        for end in connections.iter().flat_map(|connection| &connection.ends) {
            // It fails if the socket is closed already, which is fine.
            let _ = end.shutdown(Shutdown::Both);
        }
        for pump in connections.into_iter().flat_map(|connection| connection.pumps) {
            let _ = pump.join();
        }
        open
    }

    fn target(&self) -> SocketAddr {
        *self.target.lock().expect("no thread panics while it holds the lock")
    }

    fn connections(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.connections.lock().expect("no thread panics while it holds the lock")
    }
}

impl Connection {
    fn is_open(&self) -> bool {
        self.pumps.iter().any(|pump| !pump.is_finished())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that echoes everything, for one client.
    fn echo() -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let server = thread::spawn(move || {
            let (mut from, _) = listener.accept().expect("a client connects");
            let mut to = from.try_clone().expect("a socket can be cloned");
            let _ = std::io::copy(&mut from, &mut to);
        });
        (address, server)
    }

    fn say(client: &mut TcpStream, word: &[u8]) -> std::io::Result<Vec<u8>> {
        client.write_all(word)?;
        let mut heard = vec![0; word.len()];
        client.read_exact(&mut heard)?;
        Ok(heard)
    }

    #[test]
    fn cut_closes_both_sides() {
        let (address, server) = echo();
        let relay = Relay::to(address);
        let mut client = TcpStream::connect(relay.address()).expect("the relay listens");
        assert_eq!(say(&mut client, b"hello").expect("it passes"), b"hello");
        // A word may pass before the relay has noted its connection.
        crate::wait::until("a connection to cut", || (relay.cut() == 1).then_some(()));
        assert!(say(&mut client, b"hello").is_err());
        server.join().expect("the server saw the end");
    }

    #[test]
    fn relay_that_is_down_accepts_no_connection() {
        let (address, server) = echo();
        let relay = Relay::to(address);
        relay.down();
        let mut early = TcpStream::connect(relay.address()).expect("the relay listens");
        assert!(say(&mut early, b"hello").is_err());
        relay.up();
        let mut late = TcpStream::connect(relay.address()).expect("the relay listens");
        assert_eq!(say(&mut late, b"hello").expect("it passes"), b"hello");
        drop((late, relay));
        server.join().expect("the server saw the end");
    }

    #[test]
    fn silenced_relay_hides_the_end_of_a_connection() {
        let (address, server) = echo();
        let relay = Relay::to(address);
        let mut client = TcpStream::connect(relay.address()).expect("the relay listens");
        assert_eq!(say(&mut client, b"hello").expect("it passes"), b"hello");
        relay.silence();
        drop(client);
        assert!(!server.is_finished());
        drop(relay);
        server.join().expect("the server saw the end of the relay");
    }
}
