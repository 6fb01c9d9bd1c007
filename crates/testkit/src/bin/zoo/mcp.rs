//! A legacy MCP server over stdio without an SDK: it reads and writes raw lines, which no SDK allows.

use std::io;

use serde_json::{Value, json};

use crate::sys::exit_now;
use crate::write::write_all;

/// Serves until the end of input.
pub(crate) fn serve() -> io::Result<()> {
    let mut pending = Vec::new();
    let mut buffer = vec![0; 65536];
    loop {
        let got = match rustix::io::read(rustix::stdio::stdin(), &mut buffer[..]) {
            Ok(0) => return Ok(()),
            Ok(got) => got,
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return Ok(()),
        };
        pending.extend_from_slice(&buffer[..got]);
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            answer(&line[..end])?;
        }
    }
}

/// Answers one line. The messages of a batch are answered one by one.
fn answer(line: &[u8]) -> io::Result<()> {
    let Ok(message) = serde_json::from_slice::<Value>(line) else { return Ok(()) };
    if let Value::Array(batch) = &message {
        return batch.iter().try_for_each(|one| answer(one.to_string().as_bytes()));
    }
    let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) else { return Ok(()) };
    let result = match method {
        "initialize" => json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}, "logging": {}},
            "serverInfo": {"name": "zoo", "version": "1"},
        }),
        "ping" => json!({}),
        "tools/list" => json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}),
        "tools/call" => match call(&message["params"])? {
            Some(text) => json!({"content": [{"type": "text", "text": text}]}),
            None => return Ok(()),
        },
        // The request line, unchanged.
        "zoo/raw" => json!({"line": String::from_utf8_lossy(line)}),
        _ => {
            return say(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "Method not found"}}));
        }
    };
    say(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

/// The text of a tool's result. `None` for a call that gets no answer.
fn call(params: &Value) -> io::Result<Option<String>> {
    let arguments = &params["arguments"];
    let text = arguments["text"].as_str().unwrap_or_default();
    match params["name"].as_str().unwrap_or_default() {
        "pid" => return Ok(Some(std::process::id().to_string())),
        // Writes the given line before the result.
        "say" => write_line(text.as_bytes())?,
        "exit" => exit_now(3),
        "hang" => return Ok(None),
        "sleep" => testkit::wait::step(std::time::Duration::from_millis(arguments["ms"].as_u64().unwrap_or(0))),
        "log" => {
            for number in 0..arguments["count"].as_u64().unwrap_or(1) {
                let params = json!({"level": "info", "data": format!("{number}{text}")});
                say(&json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}))?;
            }
        }
        "progress" => {
            let params = json!({"progressToken": params["_meta"]["progressToken"], "progress": 1, "total": 2});
            say(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))?;
        }
        _ => {}
    }
    Ok(Some(text.to_owned()))
}

fn say(message: &Value) -> io::Result<()> {
    write_line(message.to_string().as_bytes())
}

fn write_line(line: &[u8]) -> io::Result<()> {
    write_all(&rustix::stdio::stdout(), &[line, b"\n"].concat())
}
