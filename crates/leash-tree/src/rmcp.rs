//! Client transports for the official Rust SDK, over the pipes of a server on the leash.
//!
//! ```no_run
//! use leash_tree::places::Places;
//! use leash_tree::session::Session;
//! use leash_tree::tree::Spec;
//! use rmcp::ServiceExt as _;
//!
//! # async fn job() -> Result<(), Box<dyn std::error::Error>> {
//! let mut job = Session::new(Places::below("/run/my-host"));
//! let server = job.start_async(Spec::new(["npx", "-y", "@modelcontextprotocol/server-everything"])).await?;
//! let client = ().serve(server.take_transport()?).await?;
//! let tools = client.list_all_tools().await?;
//! // ... work ...
//! let receipt = job.end().await;
//! assert!(receipt.all_gone());
//! # let _ = tools;
//! # Ok(())
//! # }
//! ```
//!
//! [`Transport`] is one server of a [`Session`](crate::session::Session). [`Child`] is a server by itself, as a replacement for
//! the SDK's `TokioChildProcess`: that one kills its direct child, this one ends everything that the server has
//! started.

use std::io;

use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::net::unix::pipe::{Receiver, Sender};

use crate::places::Places;
use crate::session::run_on_thread;
use crate::tree::failure::failed;
use crate::tree::{Spec, SupervisorLost, Tree};
use leash_model::receipt::Receipt;
use leash_model::start_failure::StartFailure;

/// A transport to a server whose tree belongs to a session, which ends it. Closing the transport closes the server's
/// stdin, which begins the end of that server too.
pub type Transport = AsyncRwTransport<RoleClient, Receiver, Sender>;

impl Tree {
    /// The server's streams as a client transport. An error if they were taken before.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O.
    pub fn take_transport(&mut self) -> io::Result<Transport> {
        let (stdin, stdout) = self.take_async_streams()?;
        Ok(Transport::new(stdout, stdin))
    }
}

/// A transport that owns its server. Closing it ends the whole tree and returns when the tree is gone. Dropping it ends
/// the tree in the background, with or without a runtime.
pub struct Child {
    transport: Transport,
    tree: Option<Tree>,
}

impl std::fmt::Debug for Child {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Child").field("tree", &self.tree).finish_non_exhaustive()
    }
}

impl Child {
    /// Starts a server.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O.
    pub async fn start(spec: Spec, places: &Places) -> Result<Child, StartFailure> {
        let places = places.clone();
        let mut tree = run_on_thread("leash-start", move || Tree::start(spec, &places)).await?;
        let transport = tree.take_transport().map_err(|error| failed("cannot watch the server", error))?;
        Ok(Child { transport, tree: Some(tree) })
    }

    /// The server, until the transport is closed.
    pub fn tree(&self) -> Option<&Tree> {
        self.tree.as_ref()
    }

    /// Ends the server. Returns the receipt when it is gone; `None` if it was ended before.
    pub async fn end(&mut self) -> Option<Result<Receipt, SupervisorLost>> {
        use ::rmcp::transport::Transport as _;
        let mut tree = self.tree.take()?;
        // Ask first: closing its stdin begins the end too, but with another reason.
        tree.ask_to_end();
        let mut ending = run_on_thread("leash-ending", move || tree.wait());
        // This fails if the server has exited; the end of the tree shows that too.
        let _ = self.transport.close().await;
        let mut speaks = true;
        loop {
            tokio::select! {
                end = &mut ending => return Some(end),
                // A server that is blocked on a full pipe can't see the end of its stdin.
                message = self.transport.receive(), if speaks => speaks = message.is_some(),
            }
        }
    }
}

impl ::rmcp::transport::Transport<RoleClient> for Child {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.transport.send(message)
    }

    fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleClient>>> + Send {
        self.transport.receive()
    }

    async fn close(&mut self) -> io::Result<()> {
        match self.end().await {
            Some(Err(error)) => Err(io::Error::other(error)),
            Some(Ok(_)) | None => Ok(()),
        }
    }
}
