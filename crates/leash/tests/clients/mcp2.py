"""A client written with the official Python SDK, 2.x."""

import os
from contextlib import nullcontext

import acts
import anyio
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

MODES = {"legacy": "legacy", "auto": "auto", "modern": "2026-07-28"}


async def sample(_context, _params):
    content = types.TextContent(type="text", text="four")
    return types.CreateMessageResult(model="leash-test-model", role="assistant", content=content)


async def elicit(_context, _params):
    return types.ElicitResult(action="accept", content={"name": "Ada"})


async def cancel(call, started):
    """A caller that stops waiting notifies the server."""

    async def give_up():
        await started.wait()
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(give_up)
        with anyio.CancelScope() as scope:
            await call()
    return "cancelled" if scope.cancelled_caught else "answered"


async def main():
    mode, names, kind, target = acts.order()
    http = create_mcp_http_client(headers=acts.headers()) if kind == "http" else nullcontext()
    async with http as http_client:
        if kind == "http":
            server = streamable_http_client(target[0], http_client=http_client)
        else:
            server = StdioServerParameters(command=target[0], args=target[1:], env=dict(os.environ))
        async with Client(
            server, mode=MODES[mode], sampling_callback=sample, elicitation_callback=elicit, cache=None
        ) as client:
            name = client.server_info.name if client.server_info else None
            acts.say("connect", server=name, version=client.protocol_version)

            def call(tool, arguments, on_progress=None):
                return client.call_tool(tool, arguments, progress_callback=on_progress)

            ending = await acts.play(acts.Acts(client, call, cancel), names)
    if ending:
        acts.say(ending)


anyio.run(main)
