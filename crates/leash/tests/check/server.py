"""An HTTP server with sessions that does everything right, except for what it is told to do wrong.

    python server.py [FAULT...]

    delete-405      lets no client end a session
    delete-500      fails when a client ends a session
    zombie          goes on with sessions that were ended
    unknown-400     answers 400 to ids that it does not know
    immortal        keeps sessions that nobody uses
    any-origin      does not look at the origin
    leaks           keeps 128 KiB of every session that was ended
    modern          has no handshake and no sessions (2026-07-28)
    refuses         answers 500 to everything

It says where it listens, and leaves at the end of its stdin.
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
sessions = {}
kept = []


def find(session):
    """The session, if it is there; its idle time begins anew."""
    last = sessions.get(session)
    if last is None or ("immortal" not in FAULTS and time.monotonic() - last > IDLE):
        sessions.pop(session, None)
        return False
    sessions[session] = time.monotonic()
    return True


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer in one packet: two small ones wait for each other.
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

    def refused(self):
        if "refuses" in FAULTS:
            self.answer(500)
            return True
        if self.headers.get("Origin") and "any-origin" not in FAULTS:
            self.answer(403)
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
            info = {"name": "server.py", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": info}
            self.answer(200, {"jsonrpc": "2.0", "id": number, "result": result}, [("Mcp-Session-Id", session)])
        elif not find(self.headers.get("Mcp-Session-Id")):
            self.answer(400 if "unknown-400" in FAULTS and self.headers.get("Mcp-Session-Id", "").startswith("0000") else 404)
        elif number is None:
            self.answer(202)
        else:
            self.answer(200, {"jsonrpc": "2.0", "id": number, "result": {"tools": []}})

    def do_DELETE(self):
        session = self.headers.get("Mcp-Session-Id")
        if self.refused():
            return
        for fault in ("405", "500"):
            if f"delete-{fault}" in FAULTS:
                self.answer(int(fault))
                return
        if "leaks" in FAULTS:
            kept.append(os.urandom(128 * 1024))
        if "zombie" not in FAULTS:
            sessions.pop(session, None)
        self.answer(200)


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(f"listening on http://127.0.0.1:{server.server_port}/mcp", flush=True)
sys.stdin.buffer.read()
