"""A client written with the official Python SDK, 1.x, which knows the legacy era only."""

import os
import sys
from contextlib import asynccontextmanager

import acts
import anyio
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client


async def sample(_context, _params):
    content = types.TextContent(type="text", text="four")
    return types.CreateMessageResult(model="leash-test-model", role="assistant", content=content)


async def elicit(_context, _params):
    return types.ElicitResult(action="accept", content={"name": "Ada"})


@asynccontextmanager
async def connect(kind, target):
    if kind == "http":
        async with create_mcp_http_client(headers=acts.headers()) as http_client:
            async with streamable_http_client(target[0], http_client=http_client) as (read, write, _session):
                yield read, write
    else:
        server = StdioServerParameters(command=target[0], args=target[1:], env=dict(os.environ))
        async with stdio_client(server) as (read, write):
            yield read, write


async def main():
    mode, names, kind, target = acts.order()
    if mode != "legacy":
        sys.exit("SDK 1 is legacy")
    async with connect(kind, target) as (read, write):
        async with ClientSession(read, write, sampling_callback=sample, elicitation_callback=elicit) as session:
            hello = await session.initialize()
            acts.say("connect", server=hello.serverInfo.name, version=hello.protocolVersion)

            def call(tool, arguments, on_progress=None):
                return session.call_tool(tool, arguments, progress_callback=on_progress)

            async def cancel(call, started):
                """With this SDK the program itself has to notify the server; the id of the request is the next number."""
                number = session._request_id

                async def give_up():
                    await started.wait()
                    params = types.CancelledNotificationParams(requestId=number, reason="enough")
                    await session.send_notification(
                        types.ClientNotification(types.CancelledNotification(params=params))
                    )
                    scope.cancel()

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(give_up)
                    with anyio.CancelScope() as scope:
                        await call()
                return "cancelled" if scope.cancelled_caught else "answered"

            ending = await acts.play(acts.Acts(session, call, cancel), names)
    if ending:
        acts.say(ending)


anyio.run(main)
