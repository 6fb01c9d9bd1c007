"""A host written with the official Python SDK, of either line, that connects to every server in its configuration.

    python host.py closes|careless|deaf|brief

When it is told to exit, a `closes` host leaves its clients' contexts, and a `careless` one just exits. The end of its stdin or
a signal tells it to exit. A `deaf` host ignores everything but SIGKILL. A `brief` host connects to the servers that are quick
to exit, and exits by itself.
"""

import json
import os
import signal
import sys
from contextlib import AsyncExitStack

import anyio
from mcp import StdioServerParameters

try:
    from mcp import Client
except ImportError:
    Client = None


def server(entry):
    if "url" in entry:
        return entry["url"]
    return StdioServerParameters(command=entry["command"], args=entry["args"], env=dict(os.environ))


async def connect(stack, entry):
    if Client:
        return await stack.enter_async_context(Client(server(entry)))
    from mcp import ClientSession
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client

    target = server(entry)
    transport = streamable_http_client(target) if "url" in entry else stdio_client(target)
    read, write, *_ = await stack.enter_async_context(transport)
    session = await stack.enter_async_context(ClientSession(read, write))
    await session.initialize()
    return session


async def wait_for_end(told):
    try:
        while await anyio.to_thread.run_sync(sys.stdin.buffer.read1, 4096, abandon_on_cancel=True):
            pass
    except OSError:
        # Reading a closed terminal fails instead of returning the end of input.
        pass
    told.set()


async def wait_for_signal(told):
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async for _ in signals:
            told.set()


async def main(manner):
    with open(os.environ["LEASH_CHECK_CONFIG"]) as file:
        entries = json.load(file)["mcpServers"].items()
    told = anyio.Event()
    async with anyio.create_task_group() as tasks:
        async with AsyncExitStack() as stack:
            for name, entry in entries:
                if manner == "brief" and name == "leash-check-deaf":
                    continue
                client = await connect(stack, entry)
                await client.list_tools()
            tasks.start_soon(wait_for_end, told)
            if manner in ("closes", "deaf"):
                tasks.start_soon(wait_for_signal, told)
            if manner == "deaf":
                told = anyio.Event()
            if manner == "brief":
                told.set()
            await told.wait()
            if manner == "careless":
                os._exit(0)
        # The thread that reads stdin may block for ever.
        os._exit(0)


if len(sys.argv) != 2 or sys.argv[1] not in ("closes", "careless", "deaf", "brief"):
    sys.exit("usage: host.py closes|careless|deaf|brief")
anyio.run(main, sys.argv[1])
