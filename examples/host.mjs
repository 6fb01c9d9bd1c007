// A host that uses the official SDK. One line differs from a host without leash: the import of the transport.
//
//     npm install && node host.mjs
//
// It prints the answer of the server, and what became of the server's processes.

import { Client } from "@modelcontextprotocol/client";
// Before: import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { LeashedStdioClientTransport as StdioClientTransport } from "mcp-leash/sdk";

const transport = new StdioClientTransport({ command: "npx", args: ["-y", "@modelcontextprotocol/server-everything"], stderr: "ignore" });
const client = new Client({ name: "host", version: "1.0.0" });
await client.connect(transport);
const { content } = await client.callTool({ name: "echo", arguments: { message: "hello" } });
// When this returns, every process that the server started is gone.
await client.close();

const [{ fate, members }] = transport.receipt.holdings;
process.stdout.write(`${JSON.stringify({ answer: content[0].text, fate, members })}\n`);
