"""A server written with the official Python SDK only, of either line, so that it behaves as the SDK does. Its sessions expire
after two idle seconds; the default of the SDK is half an hour.

    python sdk_server.py stdio
    python sdk_server.py http

Over HTTP it prints its URL, and exits at the end of its stdin.
"""

import os
import socket
import sys
import threading

import anyio
import uvicorn

try:
    from mcp.server.mcpserver import MCPServer

    server, terms = MCPServer("sdk-server"), {"session_idle_timeout": 2}
except ImportError:
    from mcp.server.fastmcp import FastMCP

    server, terms = FastMCP("sdk-server", session_idle_timeout=2), {}


@server.tool()
async def wait(seconds: float) -> str:
    """Take some time."""
    await anyio.sleep(seconds)
    return "done"


def leave_at_the_end():
    sys.stdin.buffer.read()
    os._exit(0)


if sys.argv[1:] == ["stdio"]:
    server.run("stdio")
elif sys.argv[1:] == ["http"]:
    threading.Thread(target=leave_at_the_end, daemon=True).start()
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(server.streamable_http_app(**terms), log_level="error")
    anyio.run(uvicorn.Server(config).serve, [listener])
else:
    sys.exit("usage: sdk_server.py stdio|http")
