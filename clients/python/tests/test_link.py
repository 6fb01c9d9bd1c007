"""Calls while daemons stop and start, with scripted ones: a real one cannot be made to stop at the right moment."""

import asyncio
import json
import os
import socketserver
import stat
import sys
import tempfile
import threading
import unittest
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from unittest import mock

from mcp_leash import AsyncLeash, Leash, LeashError
from mcp_leash import _daemon, _documents

SERVER = {"name": "a", "kind": "http", "url": "http://127.0.0.1:1/s/x/a/mcp", "command": "/leash", "args": ["attach", "j/a"]}
SERVERS = {"a": {"url": "http://127.0.0.1:1/mcp"}}

# A stand-in for the program: it records its starts, and fails.
STAND_IN = """#!{python}
import os, sys
with open(os.path.join(os.environ["LEASH_RUNTIME_DIR"], "started"), "a") as file:
    print(*sys.argv[1:], file=file)
print("error: it is broken", file=sys.stderr)
sys.exit(125)
"""


def problem(name, status, **more):
    return status, {"type": f"urn:leash:problem:{name}", "title": name, "status": status, **more}


def made(id):
    return 201, {"id": id, "owner": {"kind": "pid", "pid": 1}, "labels": {}, "startedAtMs": 1, "servers": [SERVER]}


class Daemon(socketserver.ThreadingUnixStreamServer):
    """Answers `script["METHOD path"]` one after another, the last for ever. `None` is a connection that breaks."""

    daemon_threads = True

    def __init__(self, path, script):
        super().__init__(path, _Answer)
        self.script = script
        self.seen = []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def count(self, name):
        return sum(found == name for found, _ in self.seen)

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class _Answer(BaseHTTPRequestHandler):
    def address_string(self):
        return "unix"

    def log_message(self, *_):
        pass

    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        name = f"{self.command} {self.path}"
        self.server.seen.append((name, json.loads(body) if body else None))
        answers = self.server.script.get(name, [(200, {"version": "1", "pid": 1, "api": 1})])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer is None:
            return
        if isinstance(answer, threading.Event):
            answer.wait(30)
            answer = answers[0]
        status, document = answer
        text = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_DELETE = answer


class LinkTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = scratch.name
        self.socket = os.path.join(scratch.name, "control.sock")

    def check_error(self, code, call):
        with self.assertRaises(LeashError) as caught:
            call()
        self.assertEqual(caught.exception.code, code, str(caught.exception))
        return caught.exception

    def stand_in(self):
        path = os.path.join(self.dir, "leash")
        with open(path, "w") as file:
            file.write(STAND_IN.format(python=sys.executable))
        os.chmod(path, stat.S_IRWXU)
        return path

    def test_a_session_is_made_when_a_daemon_that_leaves_was_replaced(self):
        draining = problem("draining", 503)
        with Daemon(self.socket, {"POST /v1/sessions": [draining, draining, made("j")]}) as daemon:
            session = Leash(socket=self.socket).session(SERVERS)
            self.assertEqual(session.id, "j")
            owners = [body["owner"] for name, body in daemon.seen if name == "POST /v1/sessions"]
            self.assertEqual(owners, [{"pid": os.getpid()}] * 3)
            expected = {"a": {"type": "stdio", "command": "/leash", "args": ["attach", "j/a"]}}
            self.assertEqual(session.stdio_servers, expected)
            self.assertEqual(session.mcp_servers, {"a": {"type": "http", "url": SERVER["url"]}})

    def test_a_creation_that_broke_is_repeated_only_when_its_daemon_is_gone(self):
        with Daemon(self.socket, {"POST /v1/sessions": [None]}) as daemon:
            leash = Leash(socket=self.socket, start=False)
            leash.version()
            self.check_error("connection-lost", lambda: leash.session(SERVERS))
            self.assertEqual(daemon.count("POST /v1/sessions"), 1)
        os.remove(self.socket)
        versions = [(200, {"version": "1", "pid": pid, "api": 1}) for pid in (3, 4)]
        with Daemon(self.socket, {"GET /v1/version": versions, "POST /v1/sessions": [None, made("k")]}) as daemon:
            leash.version()
            self.assertEqual(leash.session(SERVERS).id, "k")
            self.assertEqual(daemon.count("POST /v1/sessions"), 2)

    def test_a_broken_end_is_repeated_and_an_unknown_session_is_lost(self):
        receipt = {"session": "j", "holdings": [{"kind": "tree", "fate": "left"}]}
        script = {
            "POST /v1/sessions": [made("j"), made("k")],
            "DELETE /v1/sessions/j": [None, (200, receipt)],
            "DELETE /v1/sessions/k": [problem("no-such-session", 404)],
        }
        with Daemon(self.socket, script) as daemon, Leash(socket=self.socket, bin="/does/not/exist", start=False) as leash:
            first, second = leash.session(SERVERS), leash.session(SERVERS)
            self.assertEqual(first.end(), receipt)
            self.assertEqual(first.end(), receipt)
            self.assertFalse(first.end().all_gone)
            self.assertEqual(daemon.count("DELETE /v1/sessions/j"), 2)
            self.check_error("session-lost", second.end)
            asked = daemon.count("DELETE /v1/sessions/k")
            leash.close()
            self.assertEqual(daemon.count("DELETE /v1/sessions/k"), asked)

    def test_every_mistake_of_a_request_is_reported(self):
        errors = [
            {"pointer": "/ttl", "what": "not a duration", "hint": "write 30s"},
            {"pointer": "/mcpServers/a", "what": "has neither"},
        ]
        answer = problem("invalid-request", 400, detail="2 mistakes", errors=errors, hint="see the reference")
        with Daemon(self.socket, {"POST /v1/sessions": [answer, (500, "what?")]}):
            leash = Leash(socket=self.socket, start=False)
            error = self.check_error("invalid-request", lambda: leash.session(SERVERS))
            text = "invalid-request: 2 mistakes\n  /ttl: not a duration (write 30s)\n  /mcpServers/a: has neither"
            self.assertEqual(str(error), f"{text}\nhint: see the reference")
            self.assertEqual((error.status, error.problem["errors"]), (400, errors))
            self.check_error("invalid-answer", lambda: leash.session(SERVERS))

    def test_a_daemon_that_cannot_start_says_why(self):
        with mock.patch.dict(os.environ, {"LEASH_RUNTIME_DIR": self.dir}):
            error = self.check_error("daemon-failed", Leash(bin=self.stand_in()).version)
            self.assertTrue(str(error).endswith("exit code 125\nerror: it is broken"), str(error))
            with open(os.path.join(self.dir, "started")) as file:
                self.assertEqual(set(file), {f"serve --on-demand --starter {os.getpid()}\n"})
            self.check_error("no-daemon", Leash(bin="/does/not/exist").version)
            self.check_error("no-daemon", Leash(start=False).version)
        self.check_error("invalid-argument", lambda: Leash(url="http://127.0.0.1:1"))
        self.check_error("no-daemon", Leash(url="http://127.0.0.1:1", token="t").version)

    def test_the_usual_variable_does_not_change_the_runtime_directory(self):
        def check(me, session, expected):
            ours = ("/run/user/7", "/run/user/0", "/custom")
            variables = {} if session is None else {"XDG_RUNTIME_DIR": session}
            with mock.patch("os.geteuid", return_value=me), mock.patch.dict(os.environ, variables, clear=True):
                with mock.patch.object(_daemon, "_is_ours", lambda path, _: path in ours):
                    self.assertEqual(_daemon.runtime_dir(), expected)

        for session in (None, "relative", "/run/user/7", "/of/another/user"):
            check(7, session, "/run/user/7/leash")
        for session in (None, "/run/user/0"):
            check(0, session, "/run/leash")
        check(7, "/custom", "/custom/leash")
        check(8, None, "/tmp/leash-8")

    def test_a_session_whose_caller_is_cancelled_is_ended(self):
        gate = threading.Event()
        script = {"POST /v1/sessions": [gate, made("j")], "DELETE /v1/sessions/j?force=true": [(200, {"holdings": []})]}

        async def run(daemon):
            task = asyncio.ensure_future(AsyncLeash(socket=self.socket, start=False).session(SERVERS)._open())
            while daemon.count("POST /v1/sessions") == 0:
                await asyncio.sleep(0)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            gate.set()
            while daemon.count("DELETE /v1/sessions/j?force=true") == 0:
                await asyncio.sleep(0)

        with Daemon(self.socket, script) as daemon:
            asyncio.run(asyncio.wait_for(run(daemon), 30))

    def test_requests_have_the_documented_form(self):
        self.assertEqual([_documents.duration(value) for value in ("1h", 1.5, timedelta(minutes=1), None)],
                         ["1h", "1500ms", "60000ms", None])
        self.check_error("invalid-argument", lambda: _documents.owner("me", False))
        self.check_error("invalid-argument", lambda: _documents.outgoing([], True))
        self.assertEqual(_documents.owner(None, True), {"connection": True})
        self.assertEqual(_documents.outgoing({"a": {"command": "x"}}, False), {"a": {"command": "x"}})
        with mock.patch.dict(os.environ, {"GOOD": "ö", "BAD": "\udcff"}):
            sent = _documents.outgoing({"a": {"command": "x", "env": {"B": "1"}, "cwd": "y"}}, True)["a"]
        self.assertEqual((sent["env"]["GOOD"], sent["env"]["B"], "BAD" in sent["env"]), ("ö", "1", False))
        self.assertEqual(sent["cwd"], os.path.join(os.getcwd(), "y"))
        json.dumps(sent, ensure_ascii=False).encode("utf-8")


if __name__ == "__main__":
    unittest.main()
