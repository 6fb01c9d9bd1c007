// A host written with @modelcontextprotocol/sdk 1.x.

import { converse, require } from "./conversation.mjs";

const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");

const callTool = (client, params, options) => client.callTool(params, undefined, options);

await converse({ Client, StdioClientTransport, callTool });
