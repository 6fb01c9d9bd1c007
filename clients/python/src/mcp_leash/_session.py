"""One session: the servers of one job."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional
from urllib.parse import quote

from ._documents import Duration, Receipt, Server, duration, query, servers
from ._errors import LeashError
from ._wire import EventStream

if TYPE_CHECKING:
    from ._link import Link


# A daemon that is told to stop writes a receipt as soon as all processes are gone.
_RECEIPT = 2.0
_RECEIPT_STEP = 0.05


class Session:
    """A session. Ending it ends every process and every upstream session of its servers, and returns when they are gone."""

    def __init__(self, link: Link, document: Mapping[str, Any], stream: Optional[EventStream] = None) -> None:
        self._link = link
        self._stream = stream
        self._receipt: Optional[Receipt] = None
        self.id: str = document["id"]
        self.name: Optional[str] = document.get("name")
        self.labels: Dict[str, str] = dict(document.get("labels") or {})
        self.owner: Dict[str, Any] = document["owner"]
        self.started_at_ms: int = document["startedAtMs"]
        self.servers: Dict[str, Server] = servers(document)

    @property
    def _path(self) -> str:
        return f"/v1/sessions/{quote(self.id, safe='')}"

    @property
    def mcp_servers(self) -> Dict[str, Dict[str, Any]]:
        """The servers as a configuration for clients that speak Streamable HTTP."""
        return {name: {"type": "http", "url": server.url} for name, server in self.servers.items()}

    @property
    def stdio_servers(self) -> Dict[str, Dict[str, Any]]:
        """The servers as a configuration for hosts that only take commands."""
        return {
            name: {"type": "stdio", "command": server.command, "args": list(server.args)}
            for name, server in self.servers.items()
        }

    def status(self) -> Dict[str, Any]:
        """The current state of the session: state, deadline, holdings with their processes and memory."""
        status: Dict[str, Any] = self._link.call("GET", self._path)
        return status

    def end(self, *, force: bool = False) -> Receipt:
        """Ends the session. When this returns, every process is gone and every upstream session is deleted, or the receipt says what is
        left. A second call returns the same receipt. With `force` there is no grace."""
        if self._receipt is None:
            self._receipt = Receipt(self._delete(("force", "true") if force else None))
            self._over()
        return self._receipt

    def begin_end(self, *, force: bool = False) -> None:
        """Begins to end the session, and does not wait for it."""
        self._delete(("wait", "false"), ("force", "true") if force else None)
        # The daemon ends it now, so nothing has to be remembered here.
        self._over()

    def _delete(self, *asked: Any) -> Dict[str, Any]:
        # The daemon that created it may be gone. A daemon that was told to stop lets another one take its place, and
        # ends its sessions meanwhile: the other one finds the receipt when it is written. A killed daemon leaves the
        # processes to its keepers, and the upstream sessions to the next daemon, so one is started.
        until: Optional[float] = None
        while True:
            try:
                ended: Dict[str, Any] = self._link.call("DELETE", self._path + query(*asked), start=True)
                return ended
            except LeashError as error:
                if error.code != "no-such-session":
                    raise
                if until is None:
                    self._link.finish(self.id)
                    until = time.monotonic() + _RECEIPT
                elif time.monotonic() > until:
                    raise self._lost(error) from error
                time.sleep(_RECEIPT_STEP)

    def _lost(self, error: LeashError) -> LeashError:
        self._over()
        why = "the daemon that held it was killed, and what it held was ended without it"
        hint = f"`leash history {self.id}` has the receipts"
        text = f"session `{self.id}` is not known any more: {why}\nhint: {hint}"
        return LeashError("session-lost", text, status=error.status, problem=error.problem)

    def _over(self) -> None:
        self._link.ended(self)
        if self._stream is not None:
            self._stream.close()

    def abort(self) -> int:
        """Cancels every pending request, keeps the session, and returns their number."""
        aborted: int = self._link.call("POST", f"{self._path}/abort", repeat=True)["aborted"]
        return aborted

    def renew(self, ttl: Optional[Duration] = None) -> Dict[str, Any]:
        """Renews the lease, with another ttl if one is given."""
        body = {} if ttl is None else {"ttl": duration(ttl)}
        status: Dict[str, Any] = self._link.call("PUT", f"{self._path}/lease", body)
        return status

    def events(self) -> EventStream:
        """The events of this session from now on."""
        return self._link.stream("GET", f"/v1/events{query(('session', self.id))}", repeat=True)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def __repr__(self) -> str:
        return f"<mcp_leash.Session {self.id} of {', '.join(self.servers)}>"
