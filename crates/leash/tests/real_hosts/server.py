"""A server written with the official Python SDK, with the two tools the hosts call.

Like many real servers it starts a long-lived helper in a session of its own and never thinks of it again.
That helper is what outlives the host when nobody holds the leash.
"""

import subprocess
import sys

import anyio
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("leash-test-server", version="1.0.0")


@server.tool()
def echo(message: str) -> str:
    """Say the message again."""
    return f"Echo: {message}"


@server.tool("trigger-long-running-operation")
async def long_running(duration: float, steps: int, context: Context) -> str:
    """Take some time and report the progress."""
    for step in range(1, steps + 1):
        await anyio.sleep(duration / steps)
        await context.report_progress(step, steps)
    return f"Long running operation completed. Duration: {duration} seconds, Steps: {steps}."


# stdin and stdout belong to the protocol. stderr is passed on, as most servers do. By it the test also sees that the
# helper lives: it holds the write end of the pipe that the test reads.
HELPER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"
subprocess.Popen(
    [sys.executable, "-c", HELPER],
    start_new_session=True,
    stdin=subprocess.DEVNULL,
    stdout=subprocess.DEVNULL,
)
server.run("stdio")
