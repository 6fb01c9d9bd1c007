//! An HTTP client of MCP that never ends its sessions.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};

use testkit::http::{Connection, POST, initialize};

use crate::sys::{Fork, fork};

/// Opens a session at each URL, prints `ready`, and then does what the first word says. With `late-hold` it connects,
/// prints `connected` and waits for a line before it sends a request.
pub(crate) fn run(mut words: VecDeque<OsString>) -> io::Result<()> {
    let then = words.pop_front().unwrap_or_default();
    let mut kept: Vec<Kept> = Vec::new();
    for word in words {
        let url = word.to_str().and_then(|url| url.strip_prefix("http://")).unwrap_or_default();
        let (address, path) = url.split_once('/').ok_or_else(|| super::wrong("not a URL"))?;
        let address: SocketAddr = address.parse().map_err(io::Error::other)?;
        let mut connection = Connection::open(address);
        if then == "late-hold" {
            io::stdout().write_all(b"connected\n")?;
            io::stdout().flush()?;
            io::stdin().read_line(&mut String::new())?;
        }
        let body = initialize("2025-06-18");
        connection.send("POST", &format!("/{path}"), &POST, body.as_bytes())?;
        let reply = connection.reply()?;
        if reply.header("mcp-session-id").is_none() {
            return Err(io::Error::other(format!("no session: {reply:?}")));
        }
        let session = reply.header("mcp-session-id").unwrap_or_default().to_owned();
        kept.push(Kept { address, connection, path: format!("/{path}"), session, stream: None });
    }
    let mut stdout = io::stdout();
    stdout.write_all(b"ready\n")?;
    stdout.flush()?;
    match then.to_str() {
        Some("exit") => {
            // Waits for a line, so that the test can make all clients exit at the same time.
            let mut word = String::new();
            io::stdin().read_line(&mut word)?;
            Ok(())
        }
        Some("hold" | "late-hold") => loop {
            rustix::event::pause();
        },
        Some("leave") => visit(&mut kept),
        Some("die") => {
            visit(&mut kept)?;
            Ok(rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)?)
        }
        Some("obey") => io::stdin().lines().try_for_each(|order| match &*order? {
            "fork" => go_on_in_child(),
            order => obey(order, &mut kept),
        }),
        _ => Err(super::wrong("hold, exit, obey, leave or die?")),
    }
}

/// For every session, opens an event stream and sends a call without waiting for the answer.
fn visit(kept: &mut [Kept]) -> io::Result<()> {
    for Kept { address, connection, path, session, stream } in kept {
        let mut listens = Connection::attempt(*address)?;
        let headers = [("accept", "text/event-stream"), ("mcp-session-id", session)];
        listens.send("GET", path, &headers, b"")?;
        *stream = Some(listens);
        let mut headers = POST.to_vec();
        headers.push(("mcp-session-id", session));
        connection.send("POST", path, &headers, br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)?;
    }
    Ok(())
}

/// A session, and the connection that it was opened on.
struct Kept {
    address: SocketAddr,
    connection: Connection,
    path: String,
    session: String,
    /// Its event stream, if one is open.
    stream: Option<Connection>,
}

/// Forks. The child inherits the connections, prints its pid and obeys the next orders; the parent does nothing more.
fn go_on_in_child() -> io::Result<()> {
    match fork()? {
        Fork::Child => {
            writeln!(io::stdout(), "fork {}", std::process::id())?;
            io::stdout().flush()
        }
        Fork::Parent(_) => loop {
            rustix::event::pause();
        },
    }
}

/// Does what one line asks for with every session (with the first one if the order ends in `-one`), and prints the
/// answers.
fn obey(order: &str, kept: &mut [Kept]) -> io::Result<()> {
    let (order, wanted) = match order.strip_suffix("-one") {
        Some(order) => (order, 1),
        None => (order, kept.len()),
    };
    for Kept { address, connection, path, session, stream } in kept.iter_mut().take(wanted) {
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let hang = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"hang"}}"#;
        let mut headers = POST.to_vec();
        headers.push(("mcp-session-id", session));
        if was_closed(connection) && TcpStream::connect(*address).is_ok() {
            *connection = Connection::open(*address);
        }
        match order {
            "call" => connection.send("POST", path, &headers, ping.as_bytes())?,
            "delete" => connection.send("DELETE", path, &headers, b"")?,
            // Opens a session on the same connection, which takes the place of the one before.
            "open" => {
                connection.send("POST", path, &POST, initialize("2025-06-18").as_bytes())?;
                let reply = connection.reply()?;
                *session = reply.header("mcp-session-id").unwrap_or_default().to_owned();
                say(order, reply.status)?;
                continue;
            }
            // This connection cannot be used for further requests.
            "abandon" => return connection.send("POST", path, &headers, hang.as_bytes()),
            "listen" => {
                let mut listens = Connection::open(*address);
                let headers = [("accept", "text/event-stream"), ("mcp-session-id", session)];
                listens.send("GET", path, &headers, b"")?;
                say(order, listens.head()?.status)?;
                *stream = Some(listens);
                continue;
            }
            // Does not wait for the answer.
            "request-stream" => {
                let mut listens = Connection::open(*address);
                let headers = [("accept", "text/event-stream"), ("mcp-session-id", session)];
                listens.send("GET", path, &headers, b"")?;
                *stream = Some(listens);
                say(order, 0)?;
                continue;
            }
            // Resets the connection, so that its port is free at once. The session is not used on the new connection.
            "reset" => {
                let old = std::mem::replace(connection, Connection::open(*address));
                rustix::net::sockopt::set_socket_linger(old.socket(), Some(std::time::Duration::ZERO))?;
                let port = old.socket().local_addr()?.port();
                drop(old);
                say(order, port)?;
                continue;
            }
            // Closes the stream in the middle, without a DELETE.
            "cut" => {
                say(order, u16::from(stream.take().is_some()))?;
                continue;
            }
            _ => return Err(super::wrong("no such order")),
        }
        say(order, connection.reply()?.status)?;
    }
    Ok(())
}

/// True if the server has closed a connection without a pending request, as every server does with a connection that
/// was idle for long.
fn was_closed(connection: &Connection) -> bool {
    let socket = connection.socket();
    let peek = || socket.peek(&mut [0]);
    let seen = socket.set_nonblocking(true).and_then(|()| peek());
    let _ = socket.set_nonblocking(false);
    !matches!(seen, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

fn say(order: &str, answer: u16) -> io::Result<()> {
    let mut stdout = io::stdout();
    writeln!(stdout, "{order} {answer}")?;
    stdout.flush()
}
