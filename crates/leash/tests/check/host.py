"""A host written with the official Python SDK that connects to everything in its configuration.

    python host.py closes|careless|deaf|brief

One that closes leaves its clients' contexts when it is told to leave, and a careless one just leaves. It is told by the end of its
stdin, or by a signal. A deaf one does not listen to anything but SIGKILL, and a brief one leaves by itself when it has connected.
"""

import json
import os
import signal
import sys
from contextlib import AsyncExitStack

import anyio
from mcp import Client, StdioServerParameters


def server(entry):
    if "url" in entry:
        return entry["url"]
    return StdioServerParameters(command=entry["command"], args=entry["args"], env=dict(os.environ))


async def wait_for_end(told):
    while await anyio.to_thread.run_sync(sys.stdin.buffer.read1, 4096, abandon_on_cancel=True):
        pass
    told.set()


async def wait_for_signal(told):
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async for _ in signals:
            told.set()


async def main(manner):
    with open(os.environ["LEASH_CHECK_CONFIG"]) as file:
        entries = json.load(file)["mcpServers"].values()
    told = anyio.Event()
    async with anyio.create_task_group() as tasks:
        async with AsyncExitStack() as stack:
            for entry in entries:
                client = await stack.enter_async_context(Client(server(entry)))
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
        # The thread that waits for the end of stdin may wait for ever.
        os._exit(0)


if len(sys.argv) != 2 or sys.argv[1] not in ("closes", "careless", "deaf", "brief"):
    sys.exit("usage: host.py closes|careless|deaf|brief")
anyio.run(main, sys.argv[1])
