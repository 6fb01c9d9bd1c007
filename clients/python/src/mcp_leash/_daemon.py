"""Finds the daemon, and starts one if there is none."""

from __future__ import annotations

import atexit
import contextlib
import os
import stat
import subprocess
import time
from typing import Callable, Dict, List, Optional

from ._binary import native_binary
from ._errors import LeashError

# A daemon listens within milliseconds. This limit is for busy machines.
PATIENCE = 30.0
STEP = 0.02

# A daemon that cannot start says why at once.
REASON = 5.0

# The daemons that this process started: it has to reap those that ended.
_started: "List[subprocess.Popen[bytes]]" = []


@atexit.register
def _leave() -> None:
    """The daemons are meant to outlive this process; Python would warn about that."""
    for child in _started:
        if child.poll() is None:
            child.returncode = 0


def runtime_dir() -> str:
    """The runtime directory, by the same rules as the program has."""
    told = os.environ.get("LEASH_RUNTIME_DIR")
    if told:
        return os.path.abspath(told)
    me = os.geteuid()
    session = os.environ.get("XDG_RUNTIME_DIR", "")
    usual = f"/run/user/{me}"
    if os.path.isabs(session) and _is_ours(session, me) and os.path.realpath(session) != usual:
        return os.path.join(session, "leash")
    if me == 0:
        return "/run/leash" if os.path.isdir("/run") else "/tmp/leash-0"
    return f"{usual}/leash" if _is_ours(usual, me) else f"/tmp/leash-{me}"


def _is_ours(path: str, me: int) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == me


def program(told: Optional[str]) -> str:
    """The program to start. The daemon is started in another directory, so a path must not depend on ours."""
    name = told or native_binary()
    return os.path.abspath(name) if "/" in name else name


def _words(bin: str, control: Optional[str]) -> List[str]:
    """The command line of a daemon that ends itself when it has no session and this process is gone."""
    place = [] if control is None else ["--control", control]
    return [bin, "serve", "--on-demand", "--starter", str(os.getpid()), *place]


def _environment() -> Dict[str, str]:
    env = dict(os.environ)
    if env.get("LEASH_RUNTIME_DIR"):
        env["LEASH_RUNTIME_DIR"] = os.path.abspath(env["LEASH_RUNTIME_DIR"])
    return env


def _launch(bin: str, control: Optional[str], stderr: int) -> subprocess.Popen[bytes]:
    _started[:] = [child for child in _started if child.poll() is None]
    try:
        # The daemon is independent of this process: it must not keep our directory, terminal or output open.
        child = subprocess.Popen(
            _words(bin, control),
            cwd="/",
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )
    except OSError as error:
        hint = "install leash, or say where it is: the argument `bin`, or LEASH_BIN"
        raise LeashError("no-daemon", f"cannot start `{bin}`: {error.strerror}\nhint: {hint}") from error
    _started.append(child)
    return child


def start(bin: str, control: Optional[str], is_there: Callable[[], bool]) -> None:
    """Starts a daemon and waits until one runs, this or another: of several that start at once one stays, and the others exit."""
    until = time.monotonic() + PATIENCE
    child = _launch(bin, control, subprocess.DEVNULL)
    while not is_there():
        code = child.poll()
        if code:
            raise _reason(bin, control, code)
        if time.monotonic() > until:
            raise LeashError("daemon-failed", f"`{bin} serve --on-demand` does not answer after {PATIENCE:.0f} s")
        time.sleep(STEP)
        # It exited because another daemon was there, which has exited as well by now.
        if code == 0 and not is_there():
            child = _launch(bin, control, subprocess.DEVNULL)


def _reason(bin: str, control: Optional[str], code: int) -> LeashError:
    """The reason of the failure. Its stderr is /dev/null, because servers inherit it; so it is started once more with a pipe."""
    child = _launch(bin, control, subprocess.PIPE)
    try:
        _, said = child.communicate(timeout=REASON)
    except subprocess.TimeoutExpired:
        # This time it started. It holds our pipe as stderr, so it is ended.
        child.terminate()
        _, said = child.communicate()
    text = said.decode("utf-8", "replace").strip()[:4000]
    return LeashError("daemon-failed", f"`{bin} serve --on-demand` failed with exit code {code}" + (f"\n{text}" if text else ""))


def finish(bin: str, id: str) -> None:
    """Waits until nothing is left of a session whose daemon was killed. Its keepers end it; what they did not finish is in the ledger."""
    null = subprocess.DEVNULL
    with contextlib.suppress(OSError):
        subprocess.run([bin, "end", id], cwd="/", env=_environment(), stdin=null, stdout=null, stderr=null, check=False)
