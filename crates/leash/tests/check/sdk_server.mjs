// A server written with @modelcontextprotocol/sdk 1.x only, so that it behaves as the SDK does:
//
//     node sdk_server.mjs stdio
//     node sdk_server.mjs http
//
// Over HTTP it keeps a transport per session, as the examples of the SDK do. It prints its URL, and exits at the end of
// its stdin.

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";

// The packages are in target/deps/npm, where the server is started, and not beside this file.
const require = createRequire(join(process.cwd(), "package.json"));
const { McpServer } = require("@modelcontextprotocol/sdk/server/mcp.js");
const { StdioServerTransport } = require("@modelcontextprotocol/sdk/server/stdio.js");
const { StreamableHTTPServerTransport } = require("@modelcontextprotocol/sdk/server/streamableHttp.js");
const { z } = require("zod");

function make() {
  const server = new McpServer({ name: "sdk-server", version: "1.0.0" });
  const inputSchema = { seconds: z.number() };
  server.registerTool("wait", { description: "Take some time", inputSchema }, async ({ seconds }) => {
    await new Promise((done) => setTimeout(done, seconds * 1000));
    return { content: [{ type: "text", text: "done" }] };
  });
  return server;
}

const transports = {};

async function serve(request, response) {
  const id = request.headers["mcp-session-id"];
  if (id && transports[id]) {
    return transports[id].handleRequest(request, response);
  }
  if (id || request.method !== "POST") {
    response.writeHead(id ? 404 : 400).end();
    return;
  }
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (session) => {
      transports[session] = transport;
    },
  });
  transport.onclose = () => delete transports[transport.sessionId];
  await make().connect(transport);
  await transport.handleRequest(request, response);
}

const [kind] = process.argv.slice(2);
if (kind === "stdio") {
  await make().connect(new StdioServerTransport());
} else if (kind === "http") {
  const http = createServer(serve);
  http.listen(0, "127.0.0.1", () => console.log(`listening on http://127.0.0.1:${http.address().port}/mcp`));
  process.stdin.on("end", () => process.exit(0)).resume();
} else {
  throw new Error("usage: sdk_server.mjs stdio|http");
}
