"""The requests to the daemon, and its answers."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple, Union
from urllib.parse import urlencode

from ._errors import LeashError

Duration = Union[str, float, timedelta]
Owner = Union[str, Mapping[str, Any]]


class Receipt(Dict[str, Any]):
    """The receipt of a session, as in `leash history --json`."""

    @property
    def all_gone(self) -> bool:
        """True if everything in it is proved to be gone."""
        return all(holding["fate"] == "gone" for holding in self["holdings"])


class Event(Dict[str, Any]):
    """An event of a session: `session`, `atMs`, and for some events `why` and `receipt`."""

    def __init__(self, type: str, document: Mapping[str, Any]) -> None:
        super().__init__(document)
        #: `started`, `owner-lost`, `ending`, `ended`, `lost`.
        self.type = type


class Server(NamedTuple):
    """A server of a session."""

    name: str
    #: `stdio` or `http`.
    kind: str
    #: For any SDK that speaks Streamable HTTP. It contains a secret that gives access to the server.
    url: str
    #: For hosts that only take a command: an absolute path, and `args` that go with it.
    command: str
    args: List[str]


def servers(document: Mapping[str, Any]) -> Dict[str, Server]:
    """The servers of a session by their names."""
    return {
        one["name"]: Server(one["name"], one["kind"], one["url"], one["command"], list(one["args"]))
        for one in document["servers"]
    }


def outgoing(mcp_servers: Mapping[str, Any], inherit_env: bool) -> Dict[str, Any]:
    """A server started by the daemon would have the daemon's environment and directory. The caller expects its own."""
    if not isinstance(mcp_servers, Mapping):
        shape = "{NAME: {command, args, env, cwd} or {url, headers}}"
        raise LeashError("invalid-argument", f"`mcp_servers` is not a mapping: {shape}")
    sent: Dict[str, Any] = {}
    for name, server in mcp_servers.items():
        at_home = inherit_env and isinstance(server, Mapping) and isinstance(server.get("command"), str)
        sent[name] = _at_home(server) if at_home else server
    return sent


def _at_home(server: Mapping[str, Any]) -> Dict[str, Any]:
    env = {**_environment(), **(server.get("env") or {})}
    return {**server, "env": env, "cwd": os.path.abspath(server.get("cwd") or ".")}


def _environment() -> Dict[str, str]:
    # JSON cannot contain bytes that are not UTF-8.
    return {name: value for name, value in os.environ.items() if _is_text(name) and _is_text(value)}


def _is_text(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def owner(asked: Optional[Owner], is_remote: bool) -> Optional[Dict[str, Any]]:
    """By default a session lives for the process that made it. A remote daemon cannot see that process, so the connection is the owner."""
    if asked is None:
        asked = "connection" if is_remote else "process"
    if isinstance(asked, Mapping):
        return dict(asked)
    known: Dict[str, Optional[Dict[str, Any]]] = {
        "process": {"pid": os.getpid()},
        "connection": {"connection": True},
        "none": None,
    }
    if asked not in known:
        raise LeashError("invalid-argument", f"`owner` is `{asked}`, not process, connection, none or {{'pid': N}}")
    return known[asked]


def duration(value: Optional[Duration]) -> Optional[str]:
    """A duration as the API takes it: a text such as `30s` as it is; otherwise seconds."""
    if value is None or isinstance(value, str):
        return value
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    return f"{round(seconds * 1000)}ms"


def query(*pairs: Optional[Tuple[str, str]]) -> str:
    """The query part of a URL; empty without parameters."""
    text = urlencode([pair for pair in pairs if pair is not None])
    return f"?{text}" if text else ""
