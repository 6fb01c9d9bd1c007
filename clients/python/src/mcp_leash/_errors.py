"""The errors: one type with a code."""

from __future__ import annotations

import json
from typing import Any, Dict, Optional

_PREFIX = "urn:leash:problem:"


class LeashError(Exception):
    """A call that failed.

    `code` is the name of the daemon's problem (`server-failed`, `no-such-session`, `invalid-request`...) or one of this module's own:
    `no-daemon`, `daemon-failed`, `connection-lost`, `session-lost`, `invalid-answer`, `invalid-argument`.
    """

    def __init__(
        self, code: str, message: str, *, status: Optional[int] = None, problem: Optional[Dict[str, Any]] = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.problem = problem


def from_answer(status: int, body: bytes) -> LeashError:
    """The error for an answer of the daemon."""
    text = body.decode("utf-8", "replace")
    try:
        problem = json.loads(text)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        return LeashError("invalid-answer", f"leash answered {status}: {text[:200]}", status=status)
    kind = str(problem.get("type", ""))
    code = kind[len(_PREFIX) :] if kind.startswith(_PREFIX) else f"http-{status}"
    return LeashError(code, _describe(problem, status), status=status, problem=problem)


def _describe(problem: Dict[str, Any], status: int) -> str:
    """One text for people: what failed, why, each mistake, what to do."""
    title, detail = problem.get("title") or f"leash answered {status}", problem.get("detail")
    text = f"{title}: {detail}" if detail and detail != title else str(title)
    for mistake in problem.get("errors") or []:
        hint = f" ({mistake['hint']})" if mistake.get("hint") else ""
        text += f"\n  {mistake.get('pointer', '')}: {mistake.get('what', '')}{hint}"
    return f"{text}\nhint: {problem['hint']}" if problem.get("hint") else text
