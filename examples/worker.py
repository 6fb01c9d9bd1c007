"""One job, one session: a worker that lives long, and whose jobs leave nothing behind.

    pip install -r requirements.txt && python worker.py < jobs.jsonl

A job is a line of JSON: {"say": TEXT, "through": "url" | "attach", "servers": MCPSERVERS}. Its outcome is a line of JSON on stdout.
WEB_URL may name an HTTP server that every job uses as well.
"""

import asyncio
import json
import os
import sys

from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_leash import AsyncLeash, LeashError

SERVERS = {"everything": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-everything"]}}
if "WEB_URL" in os.environ:
    SERVERS["web"] = {"url": os.environ["WEB_URL"]}


async def main():
    # 1. Connect once. If no daemon runs, this starts one, which ends itself when the worker and all sessions are gone.
    async with AsyncLeash() as leash:
        # 2. Receive a job.
        while line := await asyncio.to_thread(sys.stdin.readline):
            job = json.loads(line)
            try:
                # 3. Create a session for it: only this job uses these servers. They run when this returns.
                async with leash.session(job.get("servers", SERVERS)) as session:
                    # 4. Process it.
                    answers = await run(job, session)
                # 5. End the session. When this returns, all of it is gone. Leaving its scope does the same if the job failed.
                receipt = await session.end()
                held = [f"{holding['kind']} {holding['how']}" for holding in receipt["holdings"]]
                report(session=session.id, answers=answers, gone=receipt.all_gone, held=held)
            except LeashError as error:
                # A failed job is no reason for the worker to exit.
                report(error=error.code, message=str(error))


async def run(job, session):
    answers = {}
    for server in session.servers.values():
        async with Client(by_command(server) if job.get("through") == "attach" else streamable_http_client(server.url)) as client:
            result = await client.call_tool("echo", {"message": job["say"]})
            answers[server.name] = result.content[0].text
    return answers


def by_command(server):
    """For hosts that only take a command. It needs none of our environment."""
    return StdioServerParameters(command=server.command, args=server.args)


def report(**outcome):
    print(json.dumps(outcome), flush=True)


asyncio.run(main())
