// A client written with @modelcontextprotocol/client 2.x.

import { play, require } from "./acts.mjs";

const { Client, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");
const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");

const modes = { legacy: "legacy", auto: "auto", modern: { pin: "2026-07-28" } };

await play({
  Http: StreamableHTTPClientTransport,
  Stdio: StdioClientTransport,
  client: (mode, info, capabilities) => new Client(info, { capabilities, versionNegotiation: { mode: modes[mode] } }),
  answer: (client, method, answer) => client.setRequestHandler(method, answer),
  callTool: (client, params, options) => client.callTool(params, options),
  version: (client) => client.getNegotiatedProtocolVersion(),
});
