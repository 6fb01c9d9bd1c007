"""Executes an official host with the servers of the check, in its own home directory, without a login or a network.

    python real_host.py claude|gemini|codex PROGRAM

Claude Code and Gemini CLI list their servers, which connects to each, and exit. Codex runs as the program behind its editors: this
script asks it for the status of its servers, and it stays until its stdin ends.
"""

import json
import os
import sys
from pathlib import Path

# Requests to the network end at a closed port; the servers are on loopback.
QUIET = {
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "NO_PROXY": "127.0.0.1,localhost",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "GEMINI_CLI_TRUST_WORKSPACE": "true",
    "MCP_TIMEOUT": "60000",
    "NO_COLOR": "1",
}


def put(name, text):
    path = Path(os.environ["HOME"]) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def claude(servers):
    put(".claude.json", json.dumps({"mcpServers": servers}))
    return ["mcp", "list"]


def gemini(servers):
    known = {name: {"httpUrl": entry["url"]} if "url" in entry else entry for name, entry in servers.items()}
    for entry in known.values():
        entry.pop("type", None)
    put(".gemini/settings.json", json.dumps({"security": {"folderTrust": {"enabled": False}}, "mcpServers": known}))
    return ["mcp", "list"]


def codex(servers):
    lines = []
    for name, entry in servers.items():
        lines.append(f"[mcp_servers.{name}]")
        # JSON strings and lists of strings are also valid TOML.
        lines += [f"{key} = {json.dumps(entry[key])}" for key in ("command", "args", "url") if key in entry]
    put(".codex/config.toml", "\n".join(lines) + "\n")
    ask()
    return ["app-server"]


def ask():
    """Asks Codex for the status of its servers. Passes on everything else on this process's stdin, and its end."""
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        os.dup2(reader, 0)
        os.close(reader)
        return
    os.close(reader)
    client = {"clientInfo": {"name": "leash-check", "version": "1"}}
    for number, (method, params) in enumerate([("initialize", client), ("mcpServerStatus/list", {})]):
        os.write(writer, json.dumps({"id": number, "method": method, "params": params}).encode() + b"\n")
    try:
        while said := os.read(0, 4096):
            os.write(writer, said)
    except OSError:
        # The terminal or the host is gone.
        pass
    os._exit(0)


name, program = sys.argv[1:]
with open(os.environ["LEASH_CHECK_CONFIG"]) as file:
    servers = json.load(file)["mcpServers"]
words = {"claude": claude, "gemini": gemini, "codex": codex}[name](servers)
os.environ.update(QUIET)
os.chdir(os.environ["HOME"])
os.execv(program, [program, *words])
