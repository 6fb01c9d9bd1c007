"""The same for asyncio. Each call waits in its own thread: in a pool, calls that wait for an end would block others."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from typing import Any, AsyncIterator, Callable, Dict, Generator, List, Optional, TypeVar

from ._documents import Duration, Event, Receipt, Server
from ._errors import LeashError
from ._leash import Leash
from ._session import Session
from ._wire import EventStream

T = TypeVar("T")


async def _in_thread(work: Callable[[], T], unwanted: Optional[Callable[[T], object]] = None) -> T:
    """Waits for `work`. If the caller is cancelled, the work continues, and `unwanted` gets its result."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            outcome = functools.partial(deliver, work())
        except BaseException as error:
            outcome = functools.partial(fail, error)
        try:
            loop.call_soon_threadsafe(outcome)
        except RuntimeError:
            # The loop is closed: there is no task to take it.
            if outcome.func is deliver:
                discard(*outcome.args)

    def deliver(value: T) -> None:
        if done.cancelled():
            _thread(functools.partial(discard, value))
        else:
            done.set_result(value)

    def fail(error: BaseException) -> None:
        if not done.cancelled():
            done.set_exception(error)

    def discard(value: T) -> None:
        if unwanted is not None:
            # No caller waits for this error any more. This process owns a session that is left, which ends with the
            # process.
            with contextlib.suppress(LeashError):
                unwanted(value)

    _thread(run)
    try:
        return await done
    except asyncio.CancelledError:
        # The result may have arrived at the same moment.
        if done.done() and not done.cancelled() and done.exception() is None:
            _thread(functools.partial(discard, done.result()))
        raise


def _thread(work: Callable[[], object]) -> None:
    threading.Thread(target=work, name="mcp-leash", daemon=True).start()


class AsyncEventStream:
    """The events of one stream, as an asynchronous iterable."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self._waiting: asyncio.Queue[Optional[Event]] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def read() -> None:
            # One reader for the life of the stream: a caller that stops waiting for an event does not lose it.
            with contextlib.suppress(RuntimeError):
                for event in stream:
                    loop.call_soon_threadsafe(self._waiting.put_nowait, event)
                loop.call_soon_threadsafe(self._waiting.put_nowait, None)

        _thread(read)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        event = await self._waiting.get()
        if event is None:
            self._waiting.put_nowait(None)
            raise StopAsyncIteration
        return event

    async def close(self) -> None:
        """Stops listening."""
        self._stream.close()

    async def __aenter__(self) -> AsyncEventStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncSession:
    """A session. Ending it ends every process and every upstream session of its servers, and returns when they are gone."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.id: str = session.id
        self.name: Optional[str] = session.name
        self.labels: Dict[str, str] = session.labels
        self.owner: Dict[str, Any] = session.owner
        self.started_at_ms: int = session.started_at_ms
        self.servers: Dict[str, Server] = session.servers

    @property
    def mcp_servers(self) -> Dict[str, Dict[str, Any]]:
        """The servers as a configuration for clients that speak Streamable HTTP."""
        return self._session.mcp_servers

    @property
    def stdio_servers(self) -> Dict[str, Dict[str, Any]]:
        """The servers as a configuration for hosts that only take commands."""
        return self._session.stdio_servers

    async def status(self) -> Dict[str, Any]:
        """The current state of the session."""
        return await _in_thread(self._session.status)

    async def end(self, *, force: bool = False) -> Receipt:
        """Returns when everything is gone. Cancelling the wait does not stop the end."""
        return await _in_thread(lambda: self._session.end(force=force))

    async def begin_end(self, *, force: bool = False) -> None:
        """Begins to end the session, and does not wait for it."""
        await _in_thread(lambda: self._session.begin_end(force=force))

    async def abort(self) -> int:
        """Cancels every pending request, keeps the session, and returns their number."""
        return await _in_thread(self._session.abort)

    async def renew(self, ttl: Optional[Duration] = None) -> Dict[str, Any]:
        """Renews the lease, with another ttl if one is given."""
        return await _in_thread(lambda: self._session.renew(ttl))

    async def events(self) -> AsyncEventStream:
        """The events of this session from now on."""
        return AsyncEventStream(await _in_thread(self._session.events, EventStream.close))

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()


class _Opening:
    """A session that is being created: awaited, or entered."""

    def __init__(self, make: Callable[[], Session]) -> None:
        self._make = make
        self._session: Optional[AsyncSession] = None

    async def _open(self) -> AsyncSession:
        return AsyncSession(await _in_thread(self._make, lambda session: session.end(force=True)))

    def __await__(self) -> Generator[Any, None, AsyncSession]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncSession:
        self._session = await self._open()
        return self._session

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.end()


class AsyncLeash:
    """`Leash` for asyncio: the same arguments, the same methods."""

    def __init__(self, **options: Any) -> None:
        self._leash = Leash(**options)

    def session(self, mcp_servers: Any, **options: Any) -> _Opening:
        """`async with leash.session(...) as session`, or `session = await leash.session(...)`. The arguments are those of `Leash.session`.

        A session that exists when its caller is cancelled is ended.
        """
        return _Opening(lambda: self._leash.session(mcp_servers, **options))

    async def sessions(self, **options: Any) -> List[Dict[str, Any]]:
        """The living sessions."""
        return await _in_thread(lambda: self._leash.sessions(**options))

    async def attach(self, id: str) -> AsyncSession:
        """An existing session, by its id."""
        return AsyncSession(await _in_thread(lambda: self._leash.attach(id)))

    async def end_all(self, *, force: bool = False) -> List[Receipt]:
        """Ends every session of this daemon, including those of other callers."""
        return await _in_thread(lambda: self._leash.end_all(force=force))

    async def events(self, *, session: Optional[str] = None) -> AsyncEventStream:
        """The events from now on, of all sessions or of one."""
        return AsyncEventStream(await _in_thread(lambda: self._leash.events(session=session), EventStream.close))

    async def version(self) -> Dict[str, Any]:
        """The version of leash."""
        return await _in_thread(self._leash.version)

    async def close(self) -> None:
        """Ends the sessions that were created through this object and not ended."""
        await _in_thread(self._leash.close)

    async def __aenter__(self) -> AsyncLeash:
        await self.version()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
