"""The link to the daemon: calls that survive its stop, and start one if there is none."""

from __future__ import annotations

import http.client
import os
import threading
import time
from typing import Any, Callable, Dict, Optional, Set, TypeVar

from . import _daemon, _wire
from ._errors import LeashError
from ._session import Session

# A daemon that stops ends its sessions first, each with its grace.
_LEAVING = 60.0
_LEAVING_STEP = 0.05

# A connection that breaks this often has another reason than a daemon that stopped.
_TRIES = 4

T = TypeVar("T")


class Link:
    def __init__(
        self,
        socket: Optional[str],
        url: Optional[str],
        token: Optional[str],
        bin: Optional[str],
        start: bool,
    ) -> None:
        if url is not None and not token:
            raise LeashError("invalid-argument", "a daemon at a `url` wants a `token`")
        self._told = None if socket is None else os.path.abspath(socket)
        here = self._told or os.path.join(_daemon.runtime_dir(), "control.sock")
        self._place = _wire.Place(None, url, token) if url is not None else _wire.Place(here)
        self._bin = _daemon.program(bin)
        self._may_start = start and url is None
        self._starting = threading.Lock()
        self._pid: Optional[int] = None
        self._sessions: Set[Session] = set()

    @property
    def is_remote(self) -> bool:
        return self._place.socket is None

    def call(self, method: str, path: str, body: Any = None, *, start: bool = False, repeat: Optional[bool] = None) -> Any:
        """Sends a request and reads its answer. A request other than POST, or with `repeat`, is sent again if the connection breaks."""
        repeat = method != "POST" if repeat is None else repeat
        return self._persist(lambda: _wire.call(self._place, method, path, body), start, repeat)

    def stream(self, method: str, path: str, body: Any = None, *, repeat: bool = False) -> _wire.EventStream:
        """The same for an answer that is a stream of events."""
        return self._persist(lambda: _wire.stream(self._place, method, path, body), True, repeat)

    def _persist(self, attempt: Callable[[], T], start: bool, repeat: bool) -> T:
        tries = 1
        while True:
            daemon = self._pid
            try:
                return attempt()
            except _wire.NOBODY as error:
                if not (start and self._may_start and tries < _TRIES):
                    hint = "start one with `leash serve`"
                    raise LeashError("no-daemon", f"no leash listens at {self._place}\nhint: {hint}") from error
                self._start()
            except _wire.BROKEN as error:
                if tries >= _TRIES or not (repeat or self._is_another(daemon)):
                    why = "it speaks to the user only who started it"
                    raise LeashError("connection-lost", f"cannot speak to leash at {self._place}: {error}; {why}") from error
            except (OSError, http.client.HTTPException) as error:
                raise LeashError("connection-lost", f"cannot speak to leash at {self._place}: {error}") from error
            tries += 1

    def _is_another(self, daemon: Optional[int]) -> bool:
        """True if the daemon is another one than before: unfinished work of the old one ended with it, so it can be repeated."""
        there = self._look()
        # A daemon whose pid was never read may be the same one.
        return there is None or (daemon is not None and there != daemon)

    def _look(self) -> Optional[int]:
        try:
            self._pid = _wire.call(self._place, "GET", "/v1/version")["pid"]
        except (OSError, LeashError, http.client.HTTPException):
            return None
        return self._pid

    def _start(self) -> None:
        # Other callers meanwhile wait for the same start.
        with self._starting:
            if self._look() is None:
                _daemon.start(self._bin, self._told, lambda: self._look() is not None)

    def version(self) -> Dict[str, Any]:
        version: Dict[str, Any] = self.call("GET", "/v1/version", start=True)
        self._pid = version["pid"]
        if version["api"] != 1:
            text = f"leash {version['version']} speaks version {version['api']} of its API, not 1"
            raise LeashError("invalid-answer", text)
        return version

    def create(self, body: Dict[str, Any]) -> Session:
        """Creates a session, at another daemon if the current one is stopping."""
        until = time.monotonic() + _LEAVING
        while True:
            try:
                session = self._create_once(body)
            except LeashError as error:
                if error.code != "draining" or not self._may_start or time.monotonic() > until:
                    raise
                time.sleep(_LEAVING_STEP)
            else:
                self._sessions.add(session)
                return session

    def _create_once(self, body: Dict[str, Any]) -> Session:
        if not (body.get("owner") or {}).get("connection"):
            return Session(self, self.call("POST", "/v1/sessions", body, start=True))
        stream = self.stream("POST", "/v1/sessions", body)
        first = next(stream, None)
        if first is None or first.type != "session":
            stream.close()
            raise LeashError("connection-lost", "the connection that was to own the session broke")
        # The stream must be read: the daemon cuts an unread stream, and the session ends with it.
        reader = threading.Thread(target=lambda: [None for _ in stream], name="mcp-leash", daemon=True)
        reader.start()
        return Session(self, first, stream)

    def ended(self, session: Session) -> None:
        self._sessions.discard(session)

    def finish(self, id: str) -> None:
        """Waits until nothing is left of a session that no daemon knows. For a remote daemon, that cannot be seen from here."""
        if not self.is_remote:
            _daemon.finish(self._bin, id)

    def end_own(self) -> None:
        """Ends all sessions that were created here and not ended, concurrently; raises the first failure when all are done."""
        failures = []

        def end(session: Session) -> None:
            try:
                session.end()
            except LeashError as error:
                failures.append(error)

        threads = [threading.Thread(target=end, args=(session,)) for session in list(self._sessions)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
