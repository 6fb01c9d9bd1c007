//! A server with the official Rust SDK, with a guard in front: its sessions end when they are idle, and with the server.
//!
//! ```console
//! $ cargo run --example guarded_server --features tower
//! ```

#![expect(clippy::print_stdout, reason = "it is an example, and this is what it shows")]

use std::error::Error;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use leash_core::SessionGuardLayer;
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tower_layer::Layer as _;

/// A server without anything to offer: the guard is what matters here.
struct Server;

impl ServerHandler for Server {}

fn main() -> Result<(), Box<dyn Error>> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve())
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let mut store = LocalSessionManager::default();
    // This timer counts from the last message, and cuts calls that are longer. The guard knows what is in flight.
    store.session_config.keep_alive = None;
    let mcp = StreamableHttpService::new(|| Ok(Server), Arc::new(store), StreamableHttpServerConfig::default());

    let guard = SessionGuardLayer::new()
        .idle(Duration::from_secs(30))
        .max_age(Duration::from_secs(3600))
        .max_sessions(100)
        .on_end(|ended| println!("a session ended: {}, gone: {}", ended.reason.describe(), ended.is_gone()));
    let sessions = guard.sessions();
    let service = guard.layer(mcp);

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    println!("http://{}/mcp", listener.local_addr()?);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                let service = TowerToHyperService::new(service.clone());
                let connection = http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
                connections.spawn(async move { drop(connection.await) });
            }
            Some(_) = connections.join_next() => {}
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                break;
            }
        }
    }
    let ended = tokio::time::timeout(Duration::from_secs(10), sessions.shutdown()).await?;
    println!("{} sessions ended with the server", ended.len());
    Ok(())
}
