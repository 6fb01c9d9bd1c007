//! Hostile and unlucky clients. Whatever they do, the gateway answers the other clients, its memory is bounded, and
//! when they are gone nothing of theirs is left: no session, no descriptor, no memory.

mod floods;
mod requests;
mod shares;
mod slow;
mod sockets;

use std::io::Write as _;

use testkit::gateway::Gateway;
use testkit::http::{Connection, POST};
use testkit::wait;

use super::{LIST, live, open};

const MIB: u64 = 1 << 20;

/// The resources of an unused gateway.
struct Rest {
    memory: u64,
    descriptors: usize,
}

impl Rest {
    /// Measured after each server had a session, so that objects that are made once exist.
    fn of(gateway: &Gateway, servers: &[&str]) -> Rest {
        for name in servers {
            let session = open(gateway, name);
            assert_eq!(gateway.post(name, Some(&session), LIST).status, 200);
            end(gateway, name, &session);
        }
        let descriptors = wait::until("the gateway to rest", || {
            let connections = gateway.metric("leash_connections");
            (connections == Some(1.0)).then(|| gateway.descriptors())
        });
        Rest { memory: gateway.memory(), descriptors }
    }

    /// Waits until the gateway is back in this state, with at most `more` additional bytes of memory.
    fn again(&self, gateway: &Gateway, servers: &[&str], more: u64) {
        wait::until("the sessions to end", || {
            let ending = |name: &str| {
                gateway.metric(&format!("leash_sessions{{server=\"{name}\",state=\"ending\"}}")).unwrap_or_default()
            };
            servers.iter().all(|name| live(gateway, name) + ending(name) == 0.0).then_some(())
        });
        let descriptors = || gateway.descriptors();
        let closed = wait::within(wait::LIMIT, || (descriptors() <= self.descriptors).then_some(()));
        assert!(closed.is_some(), "{} descriptors, and {} at rest", descriptors(), self.descriptors);
        assert_eq!(gateway.ask("GET", "/healthz", &[], b"").text(), "ok\n");
        let bound = self.memory + more;
        let freed = wait::within(wait::LIMIT, || (gateway.memory() <= bound).then_some(()));
        assert!(freed.is_some(), "{} bytes of memory, and {} at rest", gateway.memory(), self.memory);
    }
}

/// Ends a session as its client.
fn end(gateway: &Gateway, name: &str, session: &str) {
    let headers = [("mcp-session-id", session)];
    let reply = gateway.ask("DELETE", &format!("/{name}/mcp"), &headers, b"");
    assert!((200..300).contains(&reply.status), "{reply:?}");
}

/// A connection on which these bytes were sent unchanged. The gateway may refuse them before it has read them all.
fn sent(gateway: &Gateway, bytes: &[u8]) -> Connection {
    let connection = gateway.connect();
    let _ = connection.socket().write_all(bytes);
    connection
}

/// The head of a POST, without its end.
fn post_head(session: Option<&str>) -> String {
    let session = session.map(|session| format!("Mcp-Session-Id: {session}\r\n")).unwrap_or_default();
    let [(_, kind), (_, accepted)] = POST;
    format!("POST /x/mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nAccept: {accepted}\r\n{session}")
}
