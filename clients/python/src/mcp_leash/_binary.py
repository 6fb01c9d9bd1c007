"""Finds the native program."""

from __future__ import annotations

import os
import sysconfig
from typing import Iterator, Optional


def packaged_binary() -> Optional[str]:
    """The program that was installed with this module. `None` if there is none: the wheel has it, a source tree does not."""
    return next((os.path.normpath(path) for path in _places() if os.access(path, os.X_OK)), None)


def native_binary() -> str:
    """The program to start: LEASH_BIN, else the one that was installed with this module, else `leash` on PATH."""
    return os.environ.get("LEASH_BIN") or packaged_binary() or "leash"


def _places() -> Iterator[str]:
    """The places of the wheel's scripts, the one that belongs to this module's place first."""
    packages = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.path.basename(packages) not in ("site-packages", "dist-packages"):
        # `pip install --target DIR` puts modules into DIR and programs into DIR/bin. A source tree has neither metadata nor programs.
        if any(name.startswith("mcp_leash-") and name.endswith(".dist-info") for name in os.listdir(packages)):
            yield os.path.join(packages, "bin", "leash")
        return
    # PREFIX/lib/pythonX.Y/site-packages, also for `--user` and `--prefix`.
    yield os.path.join(packages, "..", "..", "..", "bin", "leash")
    yield os.path.join(sysconfig.get_path("scripts"), "leash")
