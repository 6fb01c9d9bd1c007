"""The acts of every Python client here, for all SDKs: the same as in acts.mjs.

    python mcp2.py MODE ACT,ACT,... http URL
    python mcp1.py MODE ACT,ACT,... stdio COMMAND ARG...
"""

import json
import os
import sys

import anyio

LONG = 1_000
ENDLESS = 600_000

# Every server that tests start knows one of them.
ENDLESS_CALLS = [
    ("hang", {}),
    ("sleep", {"ms": ENDLESS, "steps": 1}),
    ("trigger-long-running-operation", {"duration": 600, "steps": 1}),
]


def say(act, **outcome):
    print(json.dumps({"act": act, **outcome}, ensure_ascii=False), flush=True)


def text(result):
    return "".join(part.text for part in result.content)


def whole(number):
    """As JavaScript has it: 4, not 4.0."""
    return int(number) if number == int(number) else number


class Acts:
    """The acts, by their names. The SDKs differ in `call(name, arguments, on_progress)` and `cancel(call)`."""

    def __init__(self, session, call, cancel):
        self.session = session
        self.call_tool = call
        self.cancel_call = cancel

    async def sleep(self, ms, steps, started=None):
        reports = []

        async def on_progress(progress, total, _message):
            reports.append([whole(progress), whole(total)])
            if started and len(reports) == 1:
                started()

        result = await self.call_tool("sleep", {"ms": ms, "steps": steps}, on_progress)
        return {"text": text(result), "reports": reports}

    async def census(self):
        return json.loads(text(await self.call_tool("census", {})))

    async def list(self):
        tools = await self.session.list_tools()
        resources = await self.session.list_resources()
        prompts = await self.session.list_prompts()
        return {
            "tools": [tool.name for tool in tools.tools],
            "resources": [str(resource.uri) for resource in resources.resources],
            "prompts": [prompt.name for prompt in prompts.prompts],
        }

    async def call(self):
        return {"text": text(await self.call_tool("echo", {"message": "hello, wörld ✓"}))}

    async def count(self):
        return {"counts": [text(await self.call_tool("counter", {})), text(await self.call_tool("counter", {}))]}

    async def progress(self):
        return await self.sleep(200, 4)

    async def cancel(self):
        before = await self.census()
        started = anyio.Event()
        outcome = await self.cancel_call(lambda: self.sleep(ENDLESS, 1, started.set), started)
        while True:
            after = await self.census()
            if after["cancelled"] > before["cancelled"] or after["asleep"] == 0:
                return {"call": outcome, "cancelled": after["cancelled"] - before["cancelled"]}
            await anyio.sleep(0.01)

    async def sampling(self):
        return {"text": text(await self.call_tool("sample", {"prompt": "2 + 2"}))}

    async def elicitation(self):
        return {"text": text(await self.call_tool("elicit", {"message": "Who are you?"}))}

    async def resume(self):
        done = await self.sleep(LONG, 1, lambda: say("resume", started=True))
        return {"text": done["text"]}

    async def wait(self):
        done = await self.sleep(ENDLESS, 1, lambda: say("wait", started=True))
        return {"text": done["text"]}

    async def abandon(self, name, arguments):
        """A call without waiting for its answer; a server that does not know the tool refuses it."""
        try:
            await self.call_tool(name, arguments)
        except Exception:
            pass

    async def obey(self):
        """Follows orders from stdin, line by line, until one tells it to end or stdin ends."""
        async with anyio.create_task_group() as tasks:
            while (line := (await anyio.to_thread.run_sync(sys.stdin.readline)).strip()) not in ("", "close", "delete"):
                if line == "call":
                    try:
                        say("call", **await self.call())
                    except Exception as error:
                        say("call", error=str(error))
                elif line == "abandon":
                    for name, arguments in ENDLESS_CALLS:
                        tasks.start_soon(self.abandon, name, arguments)
            tasks.cancel_scope.cancel()
        return {}

    async def hang(self):
        say("hang", pid=os.getpid())
        await anyio.sleep_forever()

    async def vanish(self):
        say("vanish")
        os._exit(0)


def order():
    """The mode, the acts, the kind of the target and its words."""
    words = sys.argv[1:]
    if len(words) < 4 or words[2] not in ("http", "stdio"):
        sys.exit("usage: CLIENT MODE ACT,ACT,... http URL | stdio COMMAND ARG...")
    return words[0], words[1].split(","), words[2], words[3:]


def headers():
    bearer = os.environ.get("MCP_CLIENT_BEARER")
    return {"Authorization": f"Bearer {bearer}"} if bearer else {}


async def play(acts, names):
    """Plays all acts. `close` and `terminate` both leave the context: these SDKs have no other way."""
    for name in names:
        if name in ("close", "terminate"):
            return name
        try:
            say(name, **await getattr(acts, name)())
        except Exception as error:
            say(name, error=str(error), kind=type(error).__name__)
    return None
