"""The program `leash`, as the clients of this module start it."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from typing import Any, Dict, List, Mapping, Optional, cast

import anyio

from .._binary import native_binary
from .._documents import Receipt
from .._errors import LeashError


def session_id() -> str:
    """A new id for a session of leash."""
    return f"sdk-{uuid.uuid4()}"


def program() -> str:
    """The program. A server may be started in another directory, so a path must not depend on ours."""
    name = native_binary()
    return os.path.abspath(name) if "/" in name else name


def settings() -> Dict[str, str]:
    """The variables with the settings of leash. The SDK does not pass them on by itself."""
    return {name: value for name, value in os.environ.items() if name.startswith("LEASH_")}


def no_program(error: OSError) -> LeashError:
    """The error of a program that could not be started itself."""
    hint = "install leash, or say where it is: LEASH_BIN"
    return LeashError("no-leash", f"cannot start `{program()}`: {error}\nhint: {hint}")


async def finish(session: str, env: Optional[Mapping[str, str]] = None) -> Optional[Receipt]:
    """Waits until nothing is left of a session with one member, and returns its receipt. It cannot be cancelled.

    If its leash was killed, its keeper ends it; what a killed keeper did not finish, `leash end` does.
    """
    with anyio.CancelScope(shield=True):
        receipt = await _receipt(session, env)
        if receipt is None:
            await _output(["end", session], env)
            receipt = await _receipt(session, env)
    return receipt


async def _receipt(session: str, env: Optional[Mapping[str, str]]) -> Optional[Receipt]:
    try:
        answer = cast("Dict[str, Any]", json.loads(await _output(["history", session, "--json"], env)))
    except ValueError:
        # No receipt is no proof, and the caller sees that there is none.
        return None
    receipts = cast("List[Dict[str, Any]]", answer["receipts"])
    return Receipt(receipts[0]) if receipts else None


async def _output(words: List[str], env: Optional[Mapping[str, str]]) -> bytes:
    try:
        done = await anyio.run_process(
            [program(), *words], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, cwd="/", env=env
        )
    except OSError:
        return b""
    return done.stdout
