"""The process `leash guard`, which ends HTTP sessions when this process is gone."""

from __future__ import annotations

import json
import tempfile
from typing import Any, Dict, List, Optional, Tuple, cast

import anyio
from anyio.abc import Process

from .._documents import Receipt
from .._errors import LeashError
from ._program import finish, no_program, program, session_id


class Guard:
    """The guard of one client."""

    def __init__(self) -> None:
        self.session = session_id()
        self.receipt: Optional[Receipt] = None
        self._process: Optional[Process] = None
        self._told: Dict[str, bytes] = {}
        self._said = b""
        #: Requests run at the same time. Each waits for its turn to write, and for the answer.
        self._turn = anyio.Lock()

    async def start(self, name: str) -> None:
        """Starts the guard. It cannot be cancelled: a guard is ready in milliseconds, and one that is half started would be left."""
        with anyio.CancelScope(shield=True), tempfile.TemporaryFile() as stderr:
            words = [program(), "guard", f"--session={self.session}", f"--name={name}"]
            try:
                # A session of its own: Ctrl-C must not end the guard before this process.
                process = await anyio.open_process(words, stderr=stderr, cwd="/", start_new_session=True)
            except OSError as error:
                raise no_program(error) from error
            self._process = process
            if await self._answer() is None:
                await process.aclose()
                stderr.seek(0)
                raise LeashError("guard-failed", stderr.read(4000).decode("utf-8", "replace").strip() or "leash guard ended")

    async def _answer(self) -> Optional[Dict[str, Any]]:
        """The next line of the guard; `None` if it is gone."""
        while b"\n" not in self._said:
            if not await self._receive():
                return None
        line, self._said = self._said.split(b"\n", 1)
        return cast("Dict[str, Any]", json.loads(line))

    async def _receive(self) -> bool:
        assert self._process is not None and self._process.stdout is not None
        try:
            self._said += await self._process.stdout.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return False
        return True

    async def hold(self, url: str, session: str, version: Optional[str], headers: List[Tuple[str, str]]) -> None:
        """Tells the guard of a session, unless it knows the same already. When this returns, the ledger and the keeper know it."""
        opened: Dict[str, Any] = {"url": url, "session": session, "version": version, "headers": headers}
        line = json.dumps({"open": opened}).encode()
        if self._told.get(session) != line:
            self._told[session] = line
            await self._tell(line, is_answered=True)

    def holds(self, session: str) -> bool:
        return session in self._told

    async def ended(self, session: str, status: int) -> None:
        """Tells the guard that the server has accepted a DELETE."""
        await self._tell(json.dumps({"ended": {"session": session, "status": status}}).encode())

    async def _tell(self, line: bytes, is_answered: bool = False) -> None:
        assert self._process is not None and self._process.stdin is not None
        with anyio.CancelScope(shield=True):
            async with self._turn:
                try:
                    await self._process.stdin.send(line + b"\n")
                except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                    # The guard was killed. Its keeper ends the sessions.
                    return
                if is_answered:
                    await self._answer()

    async def end(self) -> None:
        """Ends the sessions that are open. It cannot be cancelled."""
        process = self._process
        if process is None:
            return
        with anyio.CancelScope(shield=True):
            assert process.stdin is not None
            await process.stdin.aclose()
            while await self._receive():
                pass
            await process.wait()
            await process.aclose()
            lines = self._said.splitlines()
            if lines:
                self.receipt = Receipt(json.loads(lines[-1]))
            elif self._told:
                self.receipt = await finish(self.session)


