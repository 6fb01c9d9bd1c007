//! Makes the view of the whole gateway.

use std::collections::HashMap;
use std::rc::Rc;

use super::{jobs::Jobs, look};
use crate::state::{server::Server, session::ClientSession};
use leash_model::status::{StatusServerView, StatusSessionView, StatusView};

/// The characters of an id that are shown: the whole id is a client's credential.
const SHOWN: usize = 8;

/// The gateway as it is now.
pub(super) async fn now(jobs: &Jobs) -> StatusView {
    let gateway = &jobs.gateway;
    let mut servers: Vec<Rc<Server>> = gateway.servers.borrow().values().cloned().collect();
    servers.sort_by(|a, b| a.name.cmp(&b.name));
    let runs: Vec<Rc<str>> = servers.iter().flat_map(|server| server.trees()).map(|tree| tree.run).collect();
    let memory = look::memory(jobs, &runs).await;
    let settings = gateway.settings();
    StatusView {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        started_at_ms: gateway.started_ms,
        url: format!("http://{}", gateway.reached_at()),
        servers: servers
            .iter()
            .map(|server| StatusServerView {
                available: !settings.unavailable.contains_key(&*server.name),
                ..view(jobs, server, &memory)
            })
            .collect(),
        control_sessions: jobs.list().len(),
        problems: gateway.problems.list(),
    }
}

fn view(jobs: &Jobs, server: &Server, memory: &HashMap<String, u64>) -> StatusServerView {
    let mut sessions = server.all();
    sessions.sort_by_key(|session| session.started_ms);
    let trees = server.trees();
    StatusServerView {
        name: server.name.to_string(),
        kind: look::kind(server),
        url: jobs.gateway.url(&server.settings()),
        available: true,
        sessions: sessions.iter().map(|session| session_view(session)).collect(),
        memory_bytes: trees.iter().filter_map(|tree| memory.get(&*tree.run)).sum(),
        trees: trees.len(),
    }
}

fn session_view(session: &ClientSession) -> StatusSessionView {
    let id: String = session.id.chars().take(SHOWN).collect();
    StatusSessionView {
        id,
        started_at_ms: session.started_ms,
        client: session.known_client.get(),
        calls: Some(session.calls.get()),
        in_flight: Some(session.in_flight()),
    }
}
