"""`mcp_leash.sdk` under the official SDK that is installed, asyncio and trio, against a real leash: LEASH_BIN."""

import asyncio
import contextlib
import glob
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import warnings
from contextlib import asynccontextmanager

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import anyio
import anyio.lowlevel
import mcp_leash.sdk
from by_hand import Upstream, alive, until
from mcp import StdioServerParameters
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp_leash import LeashError
from mcp_leash.sdk import stdio_client, streamable_http_client
from parts import call, session, stubborn

HAS_OLD_NAME = hasattr(mcp_leash.sdk, "streamablehttp_client")


def processes_of(id):
    """The pids of leash and of its keeper for a session."""
    words = [os.environ["LEASH_BIN"], "ps", id, "--leashed", "--json"]
    one = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)["sessions"][0]
    return one["supervisor"]["pid"], one["keeper"]["pid"]


def children(pid):
    """The children of all threads: trio starts processes in a thread of its own."""
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        with contextlib.suppress(OSError), open(path) as file:
            found += [int(word) for word in file.read().split()]
    return found


def guard_of(transport):
    """The pids of a transport's guard and of its keeper."""

    def words(pid):
        # A thread of the event loop may reap another child meanwhile.
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline") as file:
            return file.read()
        return ""

    [guard] = [pid for pid in children(os.getpid()) if transport.session in words(pid)]
    # One look serves as condition and as result: a killed keeper may vanish between two.
    keepers = []

    def look():
        keepers[:] = alive(children(guard))
        return keepers

    until("the keeper", look)
    return guard, keepers[0]


class Cases:
    backend = ""

    def run_async(self, job):
        async def whole():
            await job()
            # trio refuses to end with a task by itself.
            if self.backend == "asyncio":
                self.assertEqual(asyncio.all_tasks(), {asyncio.current_task()})

        anyio.run(whole, backend=self.backend)

    def check_gone(self, transport, pids):
        self.assertEqual(alive(pids), [])
        self.assertTrue(transport.receipt.all_gone, transport.receipt)
        self.assertEqual(transport.receipt["session"], transport.session)

    def test_when_the_context_is_left_the_tree_is_gone_and_the_receipt_is_there(self):
        async def job():
            transport = stdio_client(stubborn())
            async with session(transport) as opened:
                pids = await call(opened, "pids")
                self.assertEqual((alive(pids), transport.receipt), (pids, None))
            self.check_gone(transport, pids)
            self.assertEqual((len(pids), transport.receipt["holdings"][0]["members"]), (2, 2))

        self.run_async(job)

    def test_cancelled_while_a_call_is_in_flight(self):
        async def job():
            transport = stdio_client(stubborn())
            with anyio.CancelScope() as scope:
                async with session(transport) as opened, anyio.create_task_group() as tasks:
                    pids = await call(opened, "pids")
                    tasks.start_soon(call, opened, "hang")
                    await anyio.lowlevel.checkpoint()
                    scope.cancel()
            self.assertTrue(scope.cancelled_caught)
            self.check_gone(transport, pids)

        self.run_async(job)

    def test_cancelled_during_the_start(self):
        async def job():
            for steps in range(6):
                transport = stdio_client(stubborn())
                with anyio.CancelScope() as scope:
                    async with anyio.create_task_group() as tasks:

                        async def cancel_after(steps=steps, scope=scope):
                            for _ in range(steps):
                                await anyio.lowlevel.checkpoint()
                            scope.cancel()

                        tasks.start_soon(cancel_after)
                        async with transport:
                            await anyio.sleep_forever()
                self.assertEqual([one for one in children(os.getpid()) if alive([one])], [], steps)

        self.run_async(job)

    def test_a_body_that_fails_keeps_its_error(self):
        async def job():
            transport = stdio_client(stubborn())
            with self.assertRaises(BaseException) as caught:
                async with session(transport) as opened:
                    pids = await call(opened, "pids")
                    raise KeyError("mine")
            self.assertIn("mine", repr(leaves(caught.exception)))
            self.check_gone(transport, pids)

        self.run_async(job)

    def test_the_reason_of_leash_if_the_server_cannot_start(self):
        async def job():
            with self.assertRaises(LeashError) as caught, open(os.devnull, "w") as errlog:
                async with session(stdio_client(StdioServerParameters(command="/does/not/exist"), errlog=errlog)):
                    self.fail("it started")
            self.assertEqual(caught.exception.code, "server-failed")
            self.assertIn("`/does/not/exist` was not found", str(caught.exception))
            nowhere = StdioServerParameters(command="true", cwd="/no/such/directory")
            with self.assertRaises(LeashError) as caught, open(os.devnull, "w") as errlog:
                async with session(stdio_client(nowhere, errlog)):
                    self.fail("it started")
            self.assertEqual(caught.exception.code, "server-failed")
            self.assertEqual(str(caught.exception), "cannot change to the directory `/no/such/directory`")

        self.run_async(job)

    def test_without_leash(self):
        async def job():
            with unittest.mock.patch.dict(os.environ, {"LEASH_BIN": "/no/leash/here"}):
                for transport in (stdio_client(stubborn()), streamable_http_client("http://127.0.0.1:1/mcp")):
                    with self.assertRaises(LeashError) as caught:
                        async with transport:
                            self.fail("it started")
                    self.assertEqual(caught.exception.code, "no-leash")

        self.run_async(job)

    def test_long_messages_environment_directory_and_stderr(self):
        async def job():
            with tempfile.TemporaryFile("w+") as errlog, unittest.mock.patch.dict(os.environ, {"NOT_FOR_SERVERS": "1"}):
                server = stubborn(MINE="yes").model_copy(update={"cwd": "/usr"})
                async with session(stdio_client(server, errlog)) as opened:
                    self.assertEqual(await call(opened, "length", text="ü" * 1_000_000), 1_000_000)
                    self.assertEqual(len(await call(opened, "text", length=1_000_000)), 1_000_000)
                    self.assertEqual((await call(opened, "cwd"), await call(opened, "env", name="MINE")), ("/usr", "yes"))
                    self.assertEqual(await call(opened, "env", name="HOME"), os.environ["HOME"])
                    self.assertIsNone(await call(opened, "env", name="NOT_FOR_SERVERS"))
                    await call(opened, "complain", text="something")
                errlog.seek(0, io.SEEK_SET)
                self.assertIn("something\n", errlog.read())

        self.run_async(job)

    def test_sigkill_of_each_process(self):
        async def job(victims):
            transport = stdio_client(stubborn())
            with self.assertRaises(BaseException):
                async with session(transport) as opened:
                    pids = await call(opened, "pids")
                    leash, keeper = processes_of(transport.session)
                    known = {"leash": leash, "keeper": keeper, "server": pids[0]}
                    for victim in victims:
                        os.kill(known[victim], signal.SIGKILL)
                    # It fails when the pipes break, at the latest.
                    while True:
                        await call(opened, "pids")
            self.assertEqual(alive(pids), [], victims)
            # leash's own processes write the receipt first, and then exit.
            until("the end of leash", lambda: not alive([leash, keeper]))
            self.assertEqual(transport.receipt["session"], transport.session)

        for victims in (["leash"], ["keeper"], ["server"], ["leash", "keeper"]):
            with self.subTest(victims=victims):
                self.run_async(lambda victims=victims: job(victims))

    def test_fifty_sessions_in_a_row_leave_nothing(self):
        async def job():
            everything = []
            for _ in range(50):
                transport = stdio_client(stubborn(LEASH_GRACE="0s"))
                async with session(transport) as opened:
                    everything += await call(opened, "pids")
                self.assertTrue(transport.receipt.all_gone)
            self.assertEqual((len(everything), alive(everything)), (100, []))

        self.run_async(job)

    @asynccontextmanager
    async def http(self, url):
        async with create_mcp_http_client(headers={"Authorization": "Bearer hush"}) as http_client:
            yield streamable_http_client(url, http_client=http_client)
            # Nothing of leash stays in the client.
            self.assertEqual(http_client.event_hooks["response"], [])

    def check_deleted(self, web, transport, times=1):
        self.assertEqual((web.opened, web.deleted, web.open), (times, times, set()))
        self.assertEqual(set(web.credentials), {"Bearer hush"})
        self.assertTrue(transport.receipt.all_gone, transport.receipt)

    def test_the_session_over_http_is_deleted_once(self):
        async def check(transport, web):
            async with session(transport) as opened:
                self.assertEqual(await call(opened, "echo", a=1), {"a": 1})
                self.assertEqual((len(web.open), transport.receipt), (1, None))
            self.check_deleted(web, transport)
            self.assertEqual(transport.receipt["holdings"][0]["how"], "deleted")

        async def job():
            with Upstream() as web:
                async with self.http(web.url) as transport:
                    await check(transport, web)
            if HAS_OLD_NAME:
                with Upstream() as web:
                    old = mcp_leash.sdk.streamablehttp_client(web.url, headers={"Authorization": "Bearer hush"})
                    await check(old, web)

        self.run_async(job)

    def test_a_client_of_its_own_is_closed(self):
        async def job():
            with Upstream() as web:
                transport = streamable_http_client(web.url)
                async with session(transport):
                    pass
                self.assertEqual((web.deleted, transport.receipt.all_gone), (1, True))

        self.run_async(job)

    def test_http_cancelled_while_a_call_is_in_flight(self):
        async def job():
            with Upstream() as web:
                async with self.http(web.url) as transport:
                    with anyio.CancelScope() as scope:
                        async with session(transport) as opened, anyio.create_task_group() as tasks:
                            tasks.start_soon(call, opened, "hang")
                            await anyio.lowlevel.checkpoint()
                            scope.cancel()
                    self.check_deleted(web, transport)

        self.run_async(job)

    def test_a_session_that_the_server_does_not_let_go_is_not_called_gone(self):
        async def job():
            with Upstream() as web:
                async with self.http(web.url) as transport:
                    async with session(transport):
                        web.refuse = 405
                    self.assertFalse(transport.receipt.all_gone)

        self.run_async(job)

    def test_sigkill_of_guard_and_of_its_keeper(self):
        async def job(victim):
            with Upstream() as web:
                async with self.http(web.url) as transport:
                    async with session(transport) as opened:
                        guard, keeper = guard_of(transport)
                        os.kill({"guard": guard, "keeper": keeper}[victim], signal.SIGKILL)
                        if victim == "keeper":
                            until("another keeper", lambda: guard_of(transport)[1] != keeper)
                            self.assertEqual(await call(opened, "echo", a=1), {"a": 1})
                        else:
                            until("the DELETE", lambda: not web.open)
                    self.check_deleted(web, transport)
                    until("the end of leash", lambda: not alive([guard, keeper]))

        for victim in ("guard", "keeper"):
            with self.subTest(victim=victim):
                self.run_async(lambda victim=victim: job(victim))

    def test_credentials_are_neither_on_disk_nor_on_a_command_line(self):
        async def job():
            with Upstream() as web:
                async with self.http(web.url) as transport:
                    async with session(transport):
                        guard, _ = guard_of(transport)
                        read = []
                        for path in glob.glob(os.path.join(os.environ["LEASH_RUNTIME_DIR"], "**"), recursive=True):
                            # A directory, a socket, or a file that leash has replaced meanwhile.
                            with contextlib.suppress(OSError), open(path, "rb") as file:
                                self.assertNotIn(b"hush", file.read(), path)
                                read.append(path)
                        self.assertNotEqual(read, [])
                        for path in (f"/proc/{guard}/cmdline", f"/proc/{guard}/environ"):
                            with open(path, "rb") as file:
                                self.assertNotIn(b"hush", file.read(), path)

        self.run_async(job)

    def test_fifty_sessions_over_http_in_a_row_leave_nothing(self):
        async def job():
            with Upstream() as web:
                for _ in range(50):
                    async with self.http(web.url) as transport:
                        async with session(transport):
                            pass
                self.check_deleted(web, transport, 50)

        self.run_async(job)

    def test_a_host_that_exits_or_is_killed_leaves_nothing(self):
        for way in ("exit", "kill"):
            with self.subTest(way=way), Upstream() as web:
                words = [sys.executable, os.path.join(HERE, "host.py"), self.backend, way, web.url]
                with subprocess.Popen(words, stdout=subprocess.PIPE) as host:
                    pids = json.loads(host.stdout.readline())
                    self.assertEqual((len(pids), web.opened), (2, 1))
                    if way == "kill":
                        host.kill()
                until("the DELETE", lambda: not web.open)
                until("the end of the tree", lambda: not alive(pids))
                self.assertEqual(web.deleted, 1)

    def test_a_session_that_should_stay_is_refused(self):
        with self.assertRaisesRegex(ValueError, "always ended"):
            streamable_http_client("http://127.0.0.1:1/mcp", terminate_on_close=False)


def leaves(error):
    """The exceptions in a group."""
    inner = getattr(error, "exceptions", None)
    return [error] if inner is None else [leaf for one in inner for leaf in leaves(one)]


class AsyncioTest(Cases, unittest.TestCase):
    backend = "asyncio"


class TrioTest(Cases, unittest.TestCase):
    backend = "trio"


if __name__ == "__main__":
    # SDK 1.x has deprecated the older name.
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    unittest.main(verbosity=2)
