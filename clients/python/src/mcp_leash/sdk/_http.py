"""Sessions over Streamable HTTP that are always ended."""

from __future__ import annotations

import inspect
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, Awaitable, Callable, List, Generic, Optional, Tuple, Type, TypeVar
from urllib.parse import urlsplit

import anyio
from mcp.shared._httpx_utils import create_mcp_http_client
from typing_extensions import ParamSpec

from .._documents import Receipt
from ._guard import Guard

P = ParamSpec("P")
T = TypeVar("T")

#: Makes the SDK's context manager; what it needs is left with the stack.
Opened = Callable[[AsyncExitStack], Awaitable[AbstractAsyncContextManager[T]]]

_SESSION = "mcp-session-id"
_VERSION = "mcp-protocol-version"


class LeashedHttp(AbstractAsyncContextManager[T], Generic[T]):
    """The streams of a session on the leash, as an async context manager."""

    def __init__(self, url: str, guard: Guard, opened: Opened[T]) -> None:
        self._url = url
        self._guard = guard
        self._opened = opened
        self._stack = AsyncExitStack()

    @property
    def session(self) -> str:
        """The id of the session in `leash ps` and `leash history`."""
        return self._guard.session

    @property
    def receipt(self) -> Optional[Receipt]:
        """There when the context is left, if the server gave a session."""
        return self._guard.receipt

    async def __aenter__(self) -> T:
        await self._guard.start(urlsplit(self._url).hostname or "http")
        self._stack.push_async_callback(self._guard.end)
        try:
            return await self._stack.enter_async_context(await self._opened(self._stack))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._stack.aclose()
            raise

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> Optional[bool]:
        return await self._stack.__aexit__(kind, error, trace)


def leashed_client(client: Callable[P, AbstractAsyncContextManager[T]]) -> Callable[P, LeashedHttp[T]]:
    """The SDK's `streamable_http_client` with the same parameters."""
    signature = inspect.signature(client)

    def streamable_http_client(*args: P.args, **kwargs: P.kwargs) -> LeashedHttp[T]:
        bound = _bound(signature, *args, **kwargs)
        guard = Guard()

        async def opened(stack: AsyncExitStack) -> AbstractAsyncContextManager[T]:
            http = bound.arguments["http_client"]
            if http is None:
                http = bound.arguments["http_client"] = await stack.enter_async_context(create_mcp_http_client())
            _watch(http, guard, stack)
            return client(*bound.args, **bound.kwargs)

        return LeashedHttp(bound.arguments["url"], guard, opened)

    streamable_http_client.__doc__ = client.__doc__
    return streamable_http_client


def leashed_factory(client: Callable[P, AbstractAsyncContextManager[T]]) -> Callable[P, LeashedHttp[T]]:
    """The SDK's older `streamablehttp_client`, which makes its HTTP client by a factory."""
    signature = inspect.signature(client)

    def streamablehttp_client(*args: P.args, **kwargs: P.kwargs) -> LeashedHttp[T]:
        bound = _bound(signature, *args, **kwargs)
        guard, factory = Guard(), bound.arguments["httpx_client_factory"]

        async def opened(stack: AsyncExitStack) -> AbstractAsyncContextManager[T]:
            def watched(*args: Any, **kwargs: Any) -> Any:
                http = factory(*args, **kwargs)
                _watch(http, guard, stack)
                return http

            bound.arguments["httpx_client_factory"] = watched
            return client(*bound.args, **bound.kwargs)

        return LeashedHttp(bound.arguments["url"], guard, opened)

    streamablehttp_client.__doc__ = client.__doc__
    return streamablehttp_client


def _bound(signature: inspect.Signature, *args: Any, **kwargs: Any) -> inspect.BoundArguments:
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    if not bound.arguments["terminate_on_close"]:
        raise ValueError("a session on the leash is always ended: leave out terminate_on_close=False, or use the SDK's own client")
    return bound


def _watch(http: Any, guard: Guard, stack: AsyncExitStack) -> None:
    """Tells the guard of every session that the HTTP client sees, before the SDK knows it."""

    async def seen(response: Any) -> None:
        request = response.request
        session = response.headers.get(_SESSION) or request.headers.get(_SESSION)
        if session is None:
            return
        if request.method == "DELETE":
            if response.is_success:
                await guard.ended(session, response.status_code)
        elif response.is_success or guard.holds(session):
            headers = _credentials(request.headers)
            await guard.hold(str(request.url), session, request.headers.get(_VERSION), headers)

    hooks = http.event_hooks["response"]
    hooks.append(seen)
    stack.callback(hooks.remove, seen)


def _credentials(headers: Any) -> List[Tuple[str, str]]:
    """The headers without those that differ from request to request."""
    of_messages = ("accept", "content-", "mcp-", "last-event-id", "user-agent", "connection", "host")
    return [(name, value) for name, value in headers.items() if not name.lower().startswith(of_messages)]
