"""stdio servers on the leash."""

from __future__ import annotations

import inspect
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Callable, Dict, Generic, Mapping, Optional, Type, TypeVar

from mcp.client.stdio import get_default_environment
from typing_extensions import ParamSpec

from .._documents import Receipt
from .._errors import LeashError
from ._program import finish, no_program, program, session_id, settings

P = ParamSpec("P")
T = TypeVar("T")


class LeashedStdio(AbstractAsyncContextManager[T], Generic[T]):
    """The streams of a server on the leash, as an async context manager."""

    def __init__(self, inner: AbstractAsyncContextManager[T], session: str, env: Mapping[str, str]) -> None:
        self._inner = inner
        self._env = env
        #: The id of the session in `leash ps` and `leash history`.
        self.session = session
        #: There when the context is left.
        self.receipt: Optional[Receipt] = None

    async def __aenter__(self) -> T:
        try:
            return await self._inner.__aenter__()
        except OSError as error:
            raise no_program(error) from error
        except BaseException:
            self.receipt = await finish(self.session, self._env)
            raise

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> Optional[bool]:
        try:
            suppressed = await self._inner.__aexit__(kind, error, trace)
        except BaseException as left:
            self.receipt = await finish(self.session, self._env)
            self._explain(left)
            raise
        self.receipt = await finish(self.session, self._env)
        if not suppressed:
            self._explain(error)
        return suppressed

    def _explain(self, error: Optional[BaseException]) -> None:
        """Raises the reason if the server could not be started: the SDK only says that the connection was closed."""
        reason: Dict[str, Any] = {} if self.receipt is None else self.receipt["reason"]
        if reason.get("kind") == "start_failed" and isinstance(error, Exception):
            raise LeashError("server-failed", _words(reason["why"]), problem=reason["why"]) from error


def _words(why: Mapping[str, Any]) -> str:
    """The reason for people. leash has printed it on `errlog` with a hint."""
    kind = str(why.get("kind"))
    words = {
        "not_found": "command `{command}` was not found",
        "is_directory": "`{path}` is a directory",
        "not_executable": "`{path}` cannot be executed: permission denied",
        "exec": "cannot execute `{path}`",
        "working_directory": "cannot change to the directory `{dir}`",
    }
    return words.get(kind, "the server could not be started: {kind}").format_map(why)


def leashed_stdio(client: Callable[P, AbstractAsyncContextManager[T]]) -> Callable[P, LeashedStdio[T]]:
    """The SDK's `stdio_client` with the same parameters, and with `leash run` in front of the server's command."""
    signature = inspect.signature(client)

    def stdio_client(*args: P.args, **kwargs: P.kwargs) -> LeashedStdio[T]:
        bound = signature.bind(*args, **kwargs)
        server: Any = bound.arguments["server"]
        session = session_id()
        env = {**settings(), **(server.env or {})}
        # leash changes the directory, because it says what is wrong with one.
        cwd = [] if server.cwd is None else [f"--cwd={server.cwd}"]
        words = ["run", f"--session={session}", *cwd, "--", server.command, *server.args]
        update = {"command": program(), "args": words, "env": env, "cwd": None}
        bound.arguments["server"] = server.model_copy(update=update)
        return LeashedStdio(client(*bound.args, **bound.kwargs), session, {**get_default_environment(), **env})

    stdio_client.__doc__ = client.__doc__
    return stdio_client
