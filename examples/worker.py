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
    # 1. Start the host, once. A daemon is started with it where none runs, and ends itself when both are done.
    async with AsyncLeash() as leash:
        # 2. Receive a job.
        while line := await asyncio.to_thread(sys.stdin.readline):
            job = json.loads(line)
            try:
                # 3. Make a session for it: these servers are this job's and nobody else's. They run when this returns.
                async with leash.session(job.get("servers", SERVERS)) as session:
                    # 4. Process it.
                    answers = await run(job, session)
                # 5. The session is ended by leaving its scope, whatever came of the job. Here all of it is gone.
                receipt = await session.end()
                held = [f"{holding['kind']} {holding['how']}" for holding in receipt["holdings"]]
                report(session=session.id, answers=answers, gone=receipt.all_gone, held=held)
            except LeashError as error:
                # A job that fails is no reason for the worker to end.
                report(error=error.code, message=str(error))


async def run(job, session):
    answers = {}
    for server in session.servers.values():
        async with Client(by_command(server) if job.get("through") == "attach" else streamable_http_client(server.url)) as client:
            result = await client.call_tool("echo", {"message": job["say"]})
            answers[server.name] = result.content[0].text
    return answers


def by_command(server):
    """For hosts that only take a command. It needs no environment of ours."""
    return StdioServerParameters(command=server.command, args=server.args)


def report(**outcome):
    print(json.dumps(outcome), flush=True)


asyncio.run(main())
