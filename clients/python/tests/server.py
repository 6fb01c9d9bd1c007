"""A stdio server without an SDK, for the tests of this module. It starts a process that leaves its session and ignores SIGTERM, as leaking
servers do."""

import json
import os
import subprocess
import sys

DEAF = "import signal; [signal.signal(s, signal.SIG_IGN) for s in (signal.SIGTERM, signal.SIGHUP)]; signal.pause()"
PIDS = [os.getpid()]
if "--helper" in sys.argv:
    null = subprocess.DEVNULL
    child = subprocess.Popen([sys.executable, "-c", DEAF], stdin=null, stdout=null, stderr=null, start_new_session=True)
    PIDS.append(child.pid)

TOOLS = {
    "pids": lambda _: PIDS,
    "env": lambda arguments: os.environ.get(arguments["name"]),
    "cwd": lambda _: os.getcwd(),
    "length": lambda arguments: len(arguments["text"]),
    "text": lambda arguments: "x" * arguments["length"],
    "complain": lambda arguments: print(arguments["text"], file=sys.stderr, flush=True),
    "exit": lambda _: os._exit(0),
}


def answer(method, params):
    if method == "initialize":
        info = {"name": "by-hand", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in (*TOOLS, "hang")]}
    if method == "tools/call":
        text = json.dumps(TOOLS[params["name"]](params.get("arguments") or {}))
        return {"content": [{"type": "text", "text": text}]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    is_hanging = (message.get("params") or {}).get("name") == "hang"
    if "id" in message and not is_hanging:
        result = answer(message["method"], message.get("params"))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
