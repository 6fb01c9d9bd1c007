"""Against a real leash: LEASH_BIN, or `leash` on the PATH."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error
from unittest import mock

from by_hand import Client, Upstream, alive, by_hand, until
from mcp_leash import AsyncLeash, Leash, LeashError

LEAVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "leaver.py")


class SessionsTest(unittest.TestCase):
    def setUp(self):
        self.leash = Leash()
        self.addCleanup(self.leash.close)

    def check_error(self, code, call):
        with self.assertRaises(LeashError) as caught:
            call()
        self.assertEqual(caught.exception.code, code, str(caught.exception))
        return caught.exception

    def test_when_end_returns_everything_is_gone(self):
        with Upstream() as web:
            servers = {"hand": by_hand("--helper"), "web": {"url": web.url}}
            session = self.leash.session(servers, name="a job", labels={"job": "py"})
            self.assertEqual(session.owner, {"kind": "pid", "pid": os.getpid()})
            hand = Client(session.servers["hand"].url)
            pids = hand.call("pids")
            self.assertEqual(len(alive(pids)), 2)
            self.assertEqual(Client(session.servers["web"].url).call("echo", x=1), {"x": 1})
            self.assertEqual(len(web.open), 1)
            self.assertEqual([found["id"] for found in self.leash.sessions(label={"job": "py"})], [session.id])
            self.assertEqual(session.status()["state"], "live")

            receipt = session.end()
            self.assertEqual(alive(pids), [])
            self.assertEqual((web.opened, web.deleted, web.open), (1, 1, set()))
            self.assertTrue(receipt.all_gone, receipt)
            self.assertEqual(receipt["session"], session.id)
            self.assertEqual(sorted(holding["kind"] for holding in receipt["holdings"]), ["tree", "upstream"])
            self.assertEqual(session.end(), receipt)
            self.assertEqual(self.leash.attach(session.id).end(), receipt)
            self.assertEqual(self.leash.sessions(label={"job": "py"}), [])
            with self.assertRaises(urllib.error.HTTPError) as caught:
                hand.call("pids")
            self.assertEqual(caught.exception.code, 404)
            caught.exception.close()

    def test_a_scope_that_is_left_ends_its_session(self):
        with self.assertRaisesRegex(ValueError, "the job failed"):
            with Leash() as leash, leash.session({"hand": by_hand("--helper")}) as session:
                pids = Client(session.servers["hand"].url).call("pids")
                raise ValueError("the job failed")
        self.assertEqual(alive(pids), [])
        with Leash() as leash:
            # Only the scope of the daemon ends these.
            made = [leash.session({"hand": by_hand()}) for _ in range(3)]
            pids = [pid for session in made for pid in Client(session.servers["hand"].url).call("pids")]
            self.assertEqual(len(alive(pids)), 3)
        self.assertEqual(alive(pids), [])

    def test_a_server_has_the_environment_of_the_caller_unless_told_otherwise(self):
        # A daemon of another run may have its own value of the variable.
        name = f"MCP_LEASH_TEST_{os.getpid()}"
        other = {**by_hand(), "env": {name: "mine"}, "cwd": "/"}
        with mock.patch.dict(os.environ, {name: "wörld ${HOME}"}):
            with self.leash.session({"hand": by_hand(), "other": other}) as session:
                hand, other = (Client(session.servers[name].url) for name in ("hand", "other"))
                ask = lambda client: (client.call("env", name=name), client.call("cwd"))  # noqa: E731
                self.assertEqual(ask(hand), ("wörld ${HOME}", os.getcwd()))
                self.assertEqual(ask(other), ("mine", "/"))
            with self.leash.session({"hand": by_hand()}, inherit_env=False) as session:
                self.assertIsNone(Client(session.servers["hand"].url).call("env", name=name))

    def test_a_session_is_made_whole_or_not_at_all(self):
        ids = lambda: [found["id"] for found in self.leash.sessions()]  # noqa: E731
        before = ids()
        bad = {"hand": by_hand(), "bad": {"command": "/does/not/exist"}}
        error = self.check_error("server-failed", lambda: self.leash.session(bad))
        self.assertEqual((error.status, error.problem["server"]), (502, "bad"))
        self.assertEqual(ids(), before)
        self.check_error("invalid-request", lambda: self.leash.session({"x": {"command": 1}}))

    def test_a_lease_ends_a_session_unless_it_is_renewed(self):
        session = self.leash.session({"hand": by_hand()}, ttl="1h", owner="none")
        with session.events() as events:
            self.assertEqual(session.renew(0.1)["ttlMs"], 100)
            seen = []
            for event in events:
                seen.append(event.type)
                if event.type == "ended":
                    break
        self.assertEqual(seen, ["ending", "ended"])
        self.check_error("ended", lambda: session.renew("1h"))
        self.assertTrue(session.end().all_gone)
        with self.leash.session({"hand": by_hand()}) as session:
            self.check_error("no-lease", session.renew)

    def test_pending_calls_can_be_aborted(self):
        with self.leash.session({"hand": by_hand()}) as session:
            client = Client(session.servers["hand"].url)
            said = []

            def hang():
                try:
                    client.call("hang")
                except RuntimeError as error:
                    said.append(error.args[0])

            thread = threading.Thread(target=hang)
            thread.start()
            until("the call", lambda: session.status()["servers"][0]["inFlight"] > 0)
            self.assertEqual(session.abort(), 1)
            thread.join(30)
            self.assertEqual(said, [-32000])
            self.assertEqual(len(client.call("pids")), 1)

    def test_a_session_can_be_owned_by_the_connection(self):
        session = self.leash.session({"hand": by_hand()}, owner="connection")
        self.assertEqual(session.owner, {"kind": "connection"})
        pids = Client(session.servers["hand"].url).call("pids")
        self.assertTrue(session.end().all_gone)
        self.assertEqual(alive(pids), [])

    def test_a_worker_that_exits_without_ending_its_session_leaves_nothing(self):
        for way, owner in (("exit", "process"), ("kill", "process"), ("kill", "connection")):
            with self.subTest(way=way, owner=owner), Upstream() as web:
                words = [sys.executable, LEAVER, way, web.url, owner]
                with subprocess.Popen(words, stdout=subprocess.PIPE) as worker:
                    said = json.loads(worker.stdout.readline())
                    self.assertEqual((len(said["pids"]), web.opened), (2, 1))
                    events = self.leash.events(session=said["id"])
                    if way == "kill":
                        worker.kill()
                with events:
                    if any(found["id"] == said["id"] for found in self.leash.sessions()):
                        next(event for event in events if event.type == "ended")
                self.assertEqual(alive(said["pids"]), [])
                self.assertEqual((web.deleted, web.open), (1, set()))

    def test_a_daemon_that_is_killed_leaves_nothing_and_the_next_one_is_used(self):
        with Upstream() as web:
            session = self.leash.session({"hand": by_hand("--helper"), "web": {"url": web.url}})
            pids = Client(session.servers["hand"].url).call("pids")
            Client(session.servers["web"].url)
            self.assertEqual((len(alive(pids)), len(web.open)), (2, 1))
            pid = self.leash.version()["pid"]
            os.kill(pid, signal.SIGKILL)
            self.check_error("session-lost", session.end)
            self.assertEqual(alive(pids), [])
            self.assertNotEqual(self.leash.version()["pid"], pid)
            until("the DELETE", lambda: not web.open)
            self.assertEqual(web.deleted, 1)
            with self.leash.session({"hand": by_hand()}) as session:
                Client(session.servers["hand"].url)

    def test_a_remote_daemon_needs_a_token_and_the_connection_is_the_owner(self):
        with tempfile.TemporaryDirectory() as scratch:
            socket = os.path.join(scratch, "control.sock")
            words = [os.environ.get("LEASH_BIN", "leash"), "serve", "--on-demand", "--control", socket]
            words += ["--control-listen", "127.0.0.1:0", "--control-token-env", "TOKEN"]
            env = {**os.environ, "TOKEN": "of-the-test"}
            with subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True) as daemon:
                url = next(line.split()[-1] for line in daemon.stderr if "control API on" in line)
                error = self.check_error("unauthorized", Leash(url=url, token="of-another").version)
                self.assertEqual(error.status, 401)
                with Leash(url=url, token="of-the-test") as elsewhere:
                    session = elsewhere.session({"hand": by_hand()})
                    self.assertEqual(session.owner, {"kind": "connection"})
                    pids = Client(session.servers["hand"].url).call("pids")
                    self.assertEqual(alive(pids), pids)
                self.assertEqual(alive(pids), [])
                daemon.terminate()
            self.assertEqual(daemon.returncode, 0)

    def test_a_session_can_be_created_while_the_daemon_stops(self):
        slow = {**by_hand("--helper"), "leash": {"grace": "500ms"}}
        session = self.leash.session({"slow": slow})
        pids = Client(session.servers["slow"].url).call("pids")
        pid = self.leash.version()["pid"]
        os.kill(pid, signal.SIGTERM)
        with self.leash.session({"hand": by_hand()}) as following:
            self.assertNotEqual(self.leash.version()["pid"], pid)
            self.assertEqual(len(Client(following.servers["hand"].url).call("pids")), 1)
        # The next daemon has the receipt.
        receipt = session.end()
        self.assertEqual((receipt["reason"], receipt.all_gone, alive(pids)), ({"kind": "shutdown"}, True, []))

    def test_asyncio(self):
        async def job(leash, number):
            async with leash.session({"hand": by_hand("--helper")}, name=f"job {number}") as session:
                client = await asyncio.to_thread(Client, session.servers["hand"].url)
                pids = await asyncio.to_thread(client.call, "pids")
                self.assertEqual((await session.status())["name"], f"job {number}")
                self.assertEqual(len(alive(pids)), 2)
            self.assertEqual(alive(pids), [])
            return session.id

        async def run():
            async with AsyncLeash() as leash:
                async with await leash.events() as events:
                    ids = set(await asyncio.gather(*(job(leash, number) for number in range(5))))
                    ended = set()
                    async for event in events:
                        if event.type == "ended":
                            ended.add(event["session"])
                        if ids <= ended:
                            break
                left = await leash.session({"hand": by_hand()}, ttl="1h")
                self.assertEqual((await left.renew("2h"))["ttlMs"], 7_200_000)
            return left

        left = asyncio.run(run())
        self.assertEqual(self.leash.attach(left.id).status()["state"], "ended")


if __name__ == "__main__":
    unittest.main()
