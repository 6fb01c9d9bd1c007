"""Clients of the official Python SDK (`mcp` 1.x and 2.x) with their servers and sessions on the leash. One line changes:

    from mcp_leash.sdk import stdio_client, streamable_http_client

The functions have the parameters of the SDK's own, and are used in the same way. The returned object has the `receipt` when its
`async with` is left; by then every process that the server started is gone, and the session at the HTTP server is deleted.
"""

from __future__ import annotations

from mcp.client.stdio import stdio_client as _stdio_client
from mcp.client.streamable_http import streamable_http_client as _streamable_http_client

from ._http import LeashedHttp, leashed_client, leashed_factory
from ._stdio import LeashedStdio, leashed_stdio

stdio_client = leashed_stdio(_stdio_client)
streamable_http_client = leashed_client(_streamable_http_client)

__all__ = ["LeashedHttp", "LeashedStdio", "stdio_client", "streamable_http_client"]

try:
    # The older name, which SDK 2.x no longer has.
    from mcp.client.streamable_http import (  # type: ignore[attr-defined, unused-ignore]
        streamablehttp_client as _streamablehttp_client,  # pyright: ignore
    )
except ImportError:
    pass
else:
    streamablehttp_client = leashed_factory(_streamablehttp_client)  # pyright: ignore
    __all__ += ["streamablehttp_client"]
