"""A correct HTTP server with sessions, except for the given faults.

    python server.py [FAULT...]

    delete-405      lets no client end a session
    delete-500      fails when a client ends a session
    zombie          continues to serve ended sessions
    unknown-400     answers 400 to ids that it does not know
    immortal        keeps unused sessions for ever
    any-origin      does not check the origin
    leaks           keeps 128 KiB of every session that was ended
    garbage         keeps as much for up to 400 sessions, and then frees it all, which is no fault
    modern          has no handshake and no sessions (2026-07-28)
    refuses         answers 500 to everything
    older           agrees to 2025-06-18 only, which is no fault
    late-body       sends the head of the answer to `initialize`, and never the rest
    held-open       answers all `initialize` but the first one only when a line has come on its stdin
    held-delete     answers the second DELETE only then

It prints its URL, and exits at the end of its stdin. It answers GET with its counters.
"""

import json
import os
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULTS = set(sys.argv[1:])
IDLE = 0.3
VERSION = "2025-06-18" if "older" in FAULTS else "2025-11-25"
sessions = {}
kept = []
held = threading.Event()
# The number of opened sessions, of DELETE requests, and of requests that are held now.
seen = {"opened": 0, "deletes": 0, "held": 0}


def find(session):
    """The session, if it exists; restarts its idle timeout."""
    last = sessions.get(session)
    if last is None or ("immortal" not in FAULTS and time.monotonic() - last > IDLE):
        sessions.pop(session, None)
        return False
    sessions[session] = time.monotonic()
    return True


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Sends an answer in one packet: two small ones would delay each other.
    wbufsize = -1

    def log_message(self, *_):
        pass

    def answer(self, status, body=None, headers=()):
        payload = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def hold(self, fault):
        """Waits for the line."""
        if fault in FAULTS:
            seen["held"] += 1
            held.wait()
            seen["held"] -= 1

    def do_GET(self):
        self.answer(200, {**seen, "open": len(sessions)})

    def refused(self):
        if "refuses" in FAULTS:
            self.answer(500)
            return True
        if self.headers.get("Origin") and "any-origin" not in FAULTS:
            self.answer(403)
            return True
        # As the specification requires: before any other check, for every session. Without the header the server has to
        # guess.
        if "modern" not in FAULTS and self.headers.get("MCP-Protocol-Version", VERSION) != VERSION:
            self.answer(400)
            return True
        return False

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.refused():
            return
        method, number = message["method"], message.get("id")
        if "modern" in FAULTS:
            if method == "server/discover" and self.headers.get("Mcp-Method") == method:
                self.answer(200, {"jsonrpc": "2.0", "id": number, "result": {"supportedVersions": ["2026-07-28"]}})
            else:
                error = {"code": -32022, "message": "unsupported", "data": {"supported": ["2026-07-28"]}}
                self.answer(400, {"jsonrpc": "2.0", "id": number, "error": error})
            return
        if method == "initialize":
            session = str(uuid.uuid4())
            sessions[session] = time.monotonic()
            seen["opened"] += 1
            if seen["opened"] > 1:
                self.hold("held-open")
            if "late-body" in FAULTS:
                self.begin_stream(session)
                return
            info = {"name": "server.py", "version": "1"}
            result = {"protocolVersion": VERSION, "capabilities": {}, "serverInfo": info}
            self.answer(200, {"jsonrpc": "2.0", "id": number, "result": result}, [("Mcp-Session-Id", session)])
        elif not find(self.headers.get("Mcp-Session-Id")):
            self.answer(400 if "unknown-400" in FAULTS and self.headers.get("Mcp-Session-Id", "").startswith("0000") else 404)
        elif number is None:
            self.answer(202)
        else:
            self.answer(200, {"jsonrpc": "2.0", "id": number, "result": {"tools": []}})

    def begin_stream(self, session):
        self.send_response(200)
        self.send_header("Mcp-Session-Id", session)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.flush()
        # Holds the response until the client disconnects. It has no length, so this connection cannot be used again.
        self.close_connection = True
        self.rfile.read(1)

    def do_DELETE(self):
        session = self.headers.get("Mcp-Session-Id")
        if self.refused():
            return
        seen["deletes"] += 1
        if seen["deletes"] == 2:
            self.hold("held-delete")
        for fault in ("405", "500"):
            if f"delete-{fault}" in FAULTS:
                self.answer(int(fault))
                return
        if "leaks" in FAULTS or "garbage" in FAULTS:
            kept.append(os.urandom(128 * 1024))
        if "garbage" in FAULTS and len(kept) >= 400:
            kept.clear()
        if "zombie" not in FAULTS:
            sessions.pop(session, None)
        self.answer(200)


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(f"listening on http://127.0.0.1:{server.server_port}/mcp", flush=True)
while sys.stdin.buffer.readline():
    held.set()
