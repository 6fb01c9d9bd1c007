"""The daemon, as a caller sees it."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional
from urllib.parse import quote

from ._documents import Duration, Owner, Receipt, duration, outgoing, owner as owner_of, query
from ._link import Link
from ._session import Session
from ._wire import EventStream


class Leash:
    """The daemon of this user. Found, or started, by the first call; leaving its `with` ends the sessions that were created through it.

    `socket` is another control socket; `url` and `token` a daemon that listens on TCP. `bin` is the program to start where no daemon runs
    (otherwise `LEASH_BIN`, the one that was installed with this module, or `leash` on the PATH); it ends itself when its last session and this process are gone.
    """

    def __init__(
        self,
        *,
        socket: Optional[str] = None,
        url: Optional[str] = None,
        token: Optional[str] = None,
        bin: Optional[str] = None,
        start: bool = True,
    ) -> None:
        self._link = Link(socket, url, token, bin, start)

    def session(
        self,
        mcp_servers: Mapping[str, Any],
        *,
        owner: Optional[Owner] = None,
        inherit_env: bool = True,
        ttl: Optional[Duration] = None,
        idle: Optional[Duration] = None,
        max_age: Optional[Duration] = None,
        budget: Optional[Mapping[str, Any]] = None,
        name: Optional[str] = None,
        labels: Optional[Mapping[str, str]] = None,
    ) -> Session:
        """Creates a session with its own servers, which run when this returns. If one cannot start, none does, and the error says which and why.

        It lives for this process, or for `owner`: `{"pid": N}`, `"connection"` (of this call) or `"none"`. With `inherit_env` servers have the
        environment and the directory of this process, otherwise the daemon's. Durations are texts such as `30s`, or seconds. `budget` is what all
        trees of the session may use together: `{"memory": "4G", "pids": 500, "cpu": "200%"}`.
        """
        body: Dict[str, Any] = {
            "mcpServers": outgoing(mcp_servers, inherit_env),
            "owner": owner_of(owner, self._link.is_remote),
            "ttl": duration(ttl),
            "idle": duration(idle),
            "maxAge": duration(max_age),
            "budget": None if budget is None else dict(budget),
            "name": name,
            "labels": None if labels is None else dict(labels),
        }
        return self._link.create({key: value for key, value in body.items() if value is not None})

    def sessions(self, *, all: bool = False, label: Optional[Mapping[str, str]] = None) -> List[Dict[str, Any]]:
        """The living sessions; with `all` also those that ended recently."""
        labels = [("label", f"{key}={value}") for key, value in (label or {}).items()]
        path = f"/v1/sessions{query(('all', 'true') if all else None, *labels)}"
        sessions: List[Dict[str, Any]] = self._link.call("GET", path, start=True)["sessions"]
        return sessions

    def attach(self, id: str) -> Session:
        """An existing session, by its id."""
        return Session(self._link, self._link.call("GET", f"/v1/sessions/{quote(id, safe='')}"))

    def end_all(self, *, force: bool = False) -> List[Receipt]:
        """Ends every session of this daemon, including those of other callers."""
        answer = self._link.call("DELETE", f"/v1/sessions{query(('force', 'true') if force else None)}")
        return [Receipt(receipt) for receipt in answer["receipts"]]

    def events(self, *, session: Optional[str] = None) -> EventStream:
        """The events from now on, of all sessions or of one."""
        return self._link.stream("GET", f"/v1/events{query(None if session is None else ('session', session))}", repeat=True)

    def version(self) -> Dict[str, Any]:
        """The version of leash."""
        return self._link.version()

    def close(self) -> None:
        """Ends the sessions that were made through this object and not ended. The daemon ends itself when no process needs it."""
        self._link.end_own()

    def __enter__(self) -> Leash:
        self.version()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
