"""A host that does not end its sessions: python host.py BACKEND exit|kill URL"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import anyio
from mcp_leash.sdk import stdio_client, streamable_http_client
from parts import call, session, stubborn

backend, way, url = sys.argv[1:]


async def main():
    async with session(stdio_client(stubborn())) as stdio, session(streamable_http_client(url)):
        print(json.dumps(await call(stdio, "pids")), flush=True)
        if way == "exit":
            os._exit(0)
        await anyio.sleep_forever()


anyio.run(main, backend=backend)
