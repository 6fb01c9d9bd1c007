"""Makes the wheel: `wheel.py SOURCE PROGRAM WHEEL`. Two runs make the same bytes.

flit builds the module with its metadata. This script adds the program as `leash`, a second name for it, and the tags in the name of WHEEL.
"""

import base64
import hashlib
import os
import sys
import tempfile
import time
import zipfile

from flit_core import buildapi

# `uvx mcp-leash` runs the program that is named like the package. A wheel has no links, and a second copy would double its size, so
# this is a script that replaces itself by the program next to it.
SECOND_NAME = b"""#!/bin/sh
self=$(readlink -f -- "$0")
exec "${self%/*}/leash" "$@"
"""


def main() -> None:
    source, program, wheel = (os.path.abspath(word) for word in sys.argv[1:])
    name, version, python, abi, platforms = os.path.basename(wheel)[: -len(".whl")].split("-")
    files = module(source)
    info = f"{name}-{version}.dist-info"
    if f"{info}/METADATA" not in files:
        sys.exit(f"error: clients/python has another version than {version}")
    with open(program, "rb") as file:
        files[f"{name}-{version}.data/scripts/leash"] = file.read()
    files[f"{name}-{version}.data/scripts/mcp-leash"] = SECOND_NAME
    tags = "".join(f"Tag: {python}-{abi}-{platform}\n" for platform in platforms.split("."))
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: leash xtask\nRoot-Is-Purelib: false\n{tags}".encode()
    files[f"{info}/RECORD"] = record(files, f"{info}/RECORD")
    write(wheel, files)


def module(source: str) -> "dict[str, bytes]":
    """The files of the wheel without the program."""
    os.chdir(source)
    with tempfile.TemporaryDirectory() as out:
        with zipfile.ZipFile(os.path.join(out, buildapi.build_wheel(out))) as built:
            return {name: built.read(name) for name in built.namelist()}


def record(files: "dict[str, bytes]", own: str) -> bytes:
    def line(name: str) -> str:
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).decode().rstrip("=")
        return f"{name},sha256={digest},{len(files[name])}\n"

    return ("".join(line(name) for name in sorted(files) if name != own) + f"{own},,\n").encode()


def write(wheel: str, files: "dict[str, bytes]") -> None:
    # A zip file has no time before 1980.
    when = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))[:6]
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
        # The metadata come last, as the specification asks for.
        for name in sorted(files, key=lambda name: (".dist-info/" in name, name)):
            entry = zipfile.ZipInfo(name, when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = (0o100755 if ".data/scripts/" in name else 0o100644) << 16
            out.writestr(entry, files[name])


main()
