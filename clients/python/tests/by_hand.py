"""Just enough of an MCP client, and of an HTTP server with sessions, for the tests of this module."""

import json
import os
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def by_hand(*args):
    """The server of server.py as an entry of `mcpServers`."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "server.py")
    # Its helper only exits when it is killed.
    return {"command": sys.executable, "args": [script, *args], "leash": {"grace": "100ms"}}


class Client:
    """A client of one server, after the handshake."""

    def __init__(self, url):
        self.url = url
        self.headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        self.number = 0
        info = {"name": "test", "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info})
        self.headers["mcp-protocol-version"] = "2025-06-18"
        self._post({"method": "notifications/initialized"})

    def _post(self, message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        request = urllib.request.Request(self.url, body, self.headers)
        with urllib.request.urlopen(request) as answer:
            session = answer.headers.get("mcp-session-id")
            if session:
                self.headers["mcp-session-id"] = session
            return answer.read().decode(), answer.headers.get("content-type") or ""

    def ask(self, method, params):
        """The result; `RuntimeError(code)` for an error of JSON-RPC."""
        self.number += 1
        text, kind = self._post({"id": self.number, "method": method, "params": params})
        lines = [line[5:] for line in text.splitlines() if line.startswith("data:")] if "event-stream" in kind else [text]
        messages = [json.loads(line) for line in lines if line.strip()]
        message = next(found for found in messages if found.get("id") == self.number)
        if "error" in message:
            raise RuntimeError(message["error"]["code"])
        return message["result"]

    def call(self, tool, /, **arguments):
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})
        return json.loads(result["content"][0]["text"])


class Upstream(ThreadingHTTPServer):
    """An HTTP server that counts its sessions."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Answer)
        self.opened, self.deleted, self.open = 0, 0, set()
        self.credentials, self.refuse, self.hanging = [], None, threading.Event()
        # Each connection has a thread of its own, and the counters must fit to each other at any moment.
        self.counting = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}/mcp"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def handle_error(self, request, client_address):
        """A client that was cancelled or killed is no error."""

    def __exit__(self, *_):
        self.hanging.set()
        self.shutdown()
        self.server_close()


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def finish_with(self, status, document=None, **headers):
        body = b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_DELETE(self):
        if self.server.refuse is not None:
            return self.finish_with(self.server.refuse)
        session = self.headers.get("mcp-session-id")
        with self.server.counting:
            self.server.credentials.append(self.headers.get("authorization"))
            if session in self.server.open:
                self.server.deleted += 1
                # Last, because tests wait for it and then look at the others.
                self.server.open.discard(session)
        return self.finish_with(200)

    def do_GET(self):
        self.finish_with(405)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        params = message.get("params") or {}
        if "id" not in message:
            return self.finish_with(202)
        headers = {}
        if message["method"] == "initialize":
            with self.server.counting:
                self.server.opened += 1
                headers["mcp_session_id"] = f"up-{self.server.opened}-{os.getpid()}"
                self.server.open.add(headers["mcp_session_id"])
            info = {"name": "web", "version": "1"}
            result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        elif message["method"] == "tools/list":
            result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "hang")]}
        elif params.get("name") == "hang":
            self.server.hanging.wait()
            return self.finish_with(500)
        else:
            result = {"content": [{"type": "text", "text": json.dumps(params.get("arguments"))}]}
        return self.finish_with(200, {"jsonrpc": "2.0", "id": message["id"], "result": result}, **headers)


def alive(pids):
    """The processes that exist and are not zombies."""
    return [pid for pid in pids if _state(pid) not in (None, "Z", "X")]


def _state(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return None


def until(what, look):
    """Polls until `look` returns a value."""
    deadline = time.monotonic() + 120
    while not look():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited in vain for {what}")
        time.sleep(0.005)
