"""One job, one session: end it, and every MCP server process and session it started is gone when the call returns.

    with Leash() as leash, leash.session({"files": {"command": "npx", "args": [...]}}) as session:
        session.servers["files"].url       # for any SDK that speaks Streamable HTTP
        session.servers["files"].command   # and .args: for hosts that only take a command

`AsyncLeash` is the same for asyncio.
"""

from ._asynchronous import AsyncEventStream, AsyncLeash, AsyncSession
from ._documents import Event, Receipt, Server
from ._errors import LeashError
from ._leash import Leash
from ._session import Session
from ._wire import EventStream

__all__ = [
    "AsyncEventStream",
    "AsyncLeash",
    "AsyncSession",
    "Event",
    "EventStream",
    "Leash",
    "LeashError",
    "Receipt",
    "Server",
    "Session",
]
