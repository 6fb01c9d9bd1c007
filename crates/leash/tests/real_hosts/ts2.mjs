// A host written with @modelcontextprotocol/client 2.x.

import { converse, require } from "./conversation.mjs";

const { Client } = require("@modelcontextprotocol/client");
const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");

const callTool = (client, params, options) => client.callTool(params, options);

await converse({ Client, StdioClientTransport, callTool });
