from mcp import ClientSession, StdioServerParameters
from mcp_leash import Leash, Receipt
from mcp_leash.sdk import stdio_client, streamable_http_client


async def main() -> None:
    transport = stdio_client(StdioServerParameters(command="npx"))
    async with transport as (read, write), ClientSession(read, write) as session:
        await session.initialize()
    receipt: Receipt | None = transport.receipt
    if receipt is not None and not receipt.all_gone:
        raise RuntimeError(transport.session)
    http = streamable_http_client("https://example.com/mcp")
    async with http as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
    print(http.receipt, Leash)
