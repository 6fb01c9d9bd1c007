"""A host that uses the official SDK. One line differs from a host without leash: the import of `stdio_client`.

    pip install -r requirements.txt && python host.py

It prints the answer of the server, and what became of the server's processes.
"""

import json
import os

import anyio
from mcp import ClientSession, StdioServerParameters

# Before: from mcp.client.stdio import stdio_client
from mcp_leash.sdk import stdio_client

SERVER = StdioServerParameters(command="npx", args=["-y", "@modelcontextprotocol/server-everything"])


async def main():
    with open(os.devnull, "w") as nowhere:
        transport = stdio_client(SERVER, nowhere)
        async with transport as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            result = await session.call_tool("echo", {"message": "hello"})
    # Here every process that the server started is gone.
    holding = transport.receipt["holdings"][0]
    print(json.dumps({"answer": result.content[0].text, "fate": holding["fate"], "members": holding["members"]}))


anyio.run(main)
