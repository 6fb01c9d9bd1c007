//! A server of the official SDK, with a tool that answers when the test permits it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, InitializeRequestParams, InitializeResult, ServerCapabilities,
    ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::json;
use tokio::sync::{Notify, Semaphore};

/// The service of the SDK.
pub(crate) type Mcp = StreamableHttpService<Server, LocalSessionManager>;

/// The handles that the test has of the server.
#[derive(Clone)]
pub(crate) struct Below {
    pub(crate) sessions: Arc<LocalSessionManager>,
    /// A permit lets one call be answered.
    pub(crate) calls: Arc<Semaphore>,
    /// Notified when a call waits for its permit.
    pub(crate) called: Arc<Notify>,
    /// The same for `initialize`, if it has to wait.
    pub(crate) handshakes: Option<Arc<Semaphore>>,
}

/// The server of one session.
pub(crate) struct Server(Below);

/// The SDK's service, with or without its own timer.
pub(crate) fn service(keep_alive: Option<Duration>, slow_handshake: bool) -> (Mcp, Below) {
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = keep_alive;
    let below = Below {
        sessions: Arc::new(sessions),
        calls: Arc::new(Semaphore::new(0)),
        called: Arc::default(),
        handshakes: slow_handshake.then(|| Arc::new(Semaphore::new(0))),
    };
    let server = below.clone();
    let make = move || Ok(Server(server.clone()));
    (Mcp::new(make, Arc::clone(&below.sessions), StreamableHttpServerConfig::default()), below)
}

impl Below {
    /// The number of sessions in the SDK.
    pub(crate) async fn open(&self) -> usize {
        self.sessions.sessions.read().await.len()
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        if let Some(gate) = &self.0.handshakes {
            self.0.called.notify_one();
            gate.acquire().await.expect("the gate stays").forget();
        }
        cx.peer.set_peer_info(request.clone());
        self.negotiate_initialize(&request)
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.0.called.notify_one();
        self.0.calls.acquire().await.expect("the gate stays").forget();
        let result = json!({"content": [{"type": "text", "text": "done at last"}], "resultType": "complete"});
        let result =
            serde_json::from_value(result).map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        Ok(CallToolResponse::Complete(result))
    }
}

pub(crate) fn initialize() -> Request<Full<Bytes>> {
    let params =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    post(None, json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}))
}

pub(crate) fn initialized(session: &str) -> Request<Full<Bytes>> {
    post(Some(session), json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
}

pub(crate) fn call(session: &str) -> Request<Full<Bytes>> {
    post(Some(session), json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "wait"}}))
}

fn post(session: Option<&str>, message: serde_json::Value) -> Request<Full<Bytes>> {
    super::request(Method::POST, session, message.to_string())
}
