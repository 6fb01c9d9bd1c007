"""A host written with the official Python SDK: the same conversation as in conversation.mjs.

    python py.py close|wait COMMAND ARG...
"""

import json
import os
import sys

import anyio
from mcp import Client, StdioServerParameters


def plain(value):
    """A pydantic model in its wire format."""
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


async def main(ending: str, command: str, *args: str) -> None:
    server = StdioServerParameters(command=command, args=list(args), env=dict(os.environ))
    async with Client(server) as client:
        tools = await client.list_tools()
        echo = await client.call_tool("echo", {"message": "hello"})
        progress = []

        async def on_progress(step, total, _message):
            progress.append([step, total])

        long = await client.call_tool(
            "trigger-long-running-operation", {"duration": 0.3, "steps": 3}, progress_callback=on_progress
        )
        saw = {
            "server": plain(client.server_info),
            "capabilities": plain(client.server_capabilities),
            "tools": [plain(tool) for tool in tools.tools],
            "echo": [plain(part) for part in echo.content],
            "long": [plain(part) for part in long.content],
            "progress": progress,
        }
        print("READY", json.dumps(saw), flush=True)
        if ending == "wait":
            await anyio.sleep_forever()
    print("CLOSED", flush=True)


if len(sys.argv) < 3 or sys.argv[1] not in ("close", "wait"):
    sys.exit("usage: py.py close|wait COMMAND ARG...")
anyio.run(main, *sys.argv[1:])
