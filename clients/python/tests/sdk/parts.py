"""A server that leaves a helper behind, and a client session on it."""

import json
from contextlib import asynccontextmanager

from by_hand import by_hand
from mcp import ClientSession, StdioServerParameters


def stubborn(**env):
    """The server. Its helper only exits when it is killed."""
    hand = by_hand("--helper")
    return StdioServerParameters(command=hand["command"], args=hand["args"], env={"LEASH_GRACE": "100ms", **env})


@asynccontextmanager
async def session(transport):
    """A session on a transport, after the handshake. SDK 1.x yields three values for HTTP, 2.x two."""
    async with transport as streams, ClientSession(streams[0], streams[1]) as opened:
        await opened.initialize()
        yield opened


async def call(opened, tool, /, **arguments):
    result = await opened.call_tool(tool, arguments)
    return json.loads(result.content[0].text)
