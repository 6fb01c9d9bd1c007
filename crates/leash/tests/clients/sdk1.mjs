// A client written with @modelcontextprotocol/sdk 1.x, which only knows the legacy era.

import { play, require } from "./acts.mjs";

const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { CreateMessageRequestSchema, ElicitRequestSchema } = require("@modelcontextprotocol/sdk/types.js");

const schemas = { "sampling/createMessage": CreateMessageRequestSchema, "elicitation/create": ElicitRequestSchema };

await play({
  Http: StreamableHTTPClientTransport,
  Stdio: StdioClientTransport,
  client(mode, info, capabilities) {
    if (mode !== "legacy") {
      throw new Error("SDK 1 is legacy");
    }
    return new Client(info, { capabilities });
  },
  answer: (client, method, answer) => client.setRequestHandler(schemas[method], answer),
  callTool: (client, params, options) => client.callTool(params, undefined, options),
  // Over stdio this SDK does not expose the negotiated version.
  version: (_, transport) => transport.protocolVersion ?? "2025-11-25",
});
