// The official SDKs, and the processes of leash, for the tests of mcp-leash/sdk.

import { execFile } from "node:child_process";
import { promisify } from "node:util";

import { Client as Client2, StreamableHTTPClientTransport as Http2 } from "@modelcontextprotocol/client";
import { Client as Client1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as Http1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

import { byHand, isAlive } from "../mcp.mjs";

export const sdks = [
  { name: "1.x", Client: Client1, Http: Http1 },
  { name: "2.x", Client: Client2, Http: Http2 },
];

const info = { name: "test", version: "1" };

/** A client on a transport, after the handshake, with the number of its `onclose` calls. */
export async function connected({ Client }, transport) {
  const client = new Client(info);
  const seen = { closes: 0, errors: [] };
  client.onclose = () => (seen.closes += 1);
  client.onerror = (error) => seen.errors.push(error);
  await client.connect(transport);
  const call = async (name, args = {}) => {
    const { content } = await client.callTool({ name, arguments: args });
    return JSON.parse(content[0].text);
  };
  return { client, seen, call };
}

/** The parameters of a server that leaves a helper behind. */
export const stubborn = (more = {}) => {
  const { command, args } = byHand("--helper");
  return { command, args, leash: { grace: "100ms" }, ...more };
};

/** The processes of leash for a session. */
export async function processesOf(session) {
  const { stdout } = await promisify(execFile)(process.env.LEASH_BIN, ["ps", session, "--leashed", "--json"]);
  return JSON.parse(stdout).sessions[0];
}

/** Those of `pids` that are alive. */
export async function alive(pids) {
  const states = await Promise.all(pids.map(isAlive));
  return pids.filter((_, index) => states[index]);
}
