//! A host with the official Rust SDK: lists the tools of a server, ends it, and shows the receipt.
//!
//! ```console
//! $ cargo run --example rmcp_host --features rmcp -- npx -y @modelcontextprotocol/server-everything
//! ```

#![expect(clippy::print_stdout, reason = "it is an example, and this is what it shows")]

use std::error::Error;
use std::ffi::OsString;

use leash_core::{Places, Session, Spec};
use rmcp::ServiceExt as _;

fn main() -> Result<(), Box<dyn Error>> {
    // First of all, before there is a runtime: leash executes this very program again, as a supervisor and as a keeper.
    if leash_core::enter() {
        return Ok(());
    }
    let command: Vec<OsString> = std::env::args_os().skip(1).collect();
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(host(command))
}

async fn host(command: Vec<OsString>) -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("leash-host-{}", std::process::id()));
    let mut session = Session::new(Places::below(&dir));
    let server = session.start_async(Spec::new(command)).await?;
    let client = ().serve(server.take_transport()?).await?;
    for tool in client.list_all_tools().await? {
        println!("{}", tool.name);
    }
    // Closes the server's stdin, which is how MCP asks it to leave. Without it, the end below begins with SIGTERM.
    client.cancel().await?;
    let receipt = session.end().await;
    println!("{}", serde_json::to_string_pretty(&receipt)?);
    std::fs::remove_dir_all(dir)?;
    Ok(())
}
