//! An HTTP client of MCP that never says good-bye.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::SocketAddr;

use testkit::http::{Connection, POST, initialize};

/// Opens a session at each URL, says `ready`, and then does what it was told to.
pub(crate) fn run(mut words: VecDeque<OsString>) -> io::Result<()> {
    let then = words.pop_front().unwrap_or_default();
    let mut kept = Vec::new();
    for word in words {
        let url = word.to_str().and_then(|url| url.strip_prefix("http://")).unwrap_or_default();
        let (address, path) = url.split_once('/').ok_or_else(|| super::wrong("not a URL"))?;
        let address: SocketAddr = address.parse().map_err(io::Error::other)?;
        let mut connection = Connection::open(address);
        let body = initialize("2025-06-18");
        connection.send("POST", &format!("/{path}"), &POST, body.as_bytes())?;
        let reply = connection.reply()?;
        if reply.header("mcp-session-id").is_none() {
            return Err(io::Error::other(format!("no session: {reply:?}")));
        }
        let session = reply.header("mcp-session-id").unwrap_or_default().to_owned();
        kept.push((connection, format!("/{path}"), session));
    }
    let mut stdout = io::stdout();
    stdout.write_all(b"ready\n")?;
    stdout.flush()?;
    match then.to_str() {
        Some("exit") => {
            // Until we are told to, so that everybody leaves at the same time.
            let mut word = String::new();
            io::stdin().read_line(&mut word)?;
            Ok(())
        }
        Some("hold") => loop {
            rustix::event::pause();
        },
        Some("obey") => io::stdin().lines().try_for_each(|order| obey(&order?, &mut kept)),
        _ => Err(super::wrong("hold, exit or obey?")),
    }
}

/// Does with every session what one line asks for, and says how it was answered.
fn obey(order: &str, kept: &mut [(Connection, String, String)]) -> io::Result<()> {
    let wanted = if order == "call-one" { 1 } else { kept.len() };
    for (connection, path, session) in kept.iter_mut().take(wanted) {
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let hang = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"hang"}}"#;
        let mut headers = POST.to_vec();
        headers.push(("mcp-session-id", session));
        match order {
            "call" | "call-one" => connection.send("POST", path, &headers, ping.as_bytes())?,
            "delete" => connection.send("DELETE", path, &headers, b"")?,
            // The connection is of no use after that.
            "abandon" => return connection.send("POST", path, &headers, hang.as_bytes()),
            _ => return Err(super::wrong("no such order")),
        }
        let mut stdout = io::stdout();
        writeln!(stdout, "{order} {}", connection.reply()?.status)?;
        stdout.flush()?;
    }
    Ok(())
}
