// Just enough of an MCP client, and of an HTTP server with sessions, for the tests of this module.

import { once } from "node:events";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";

/** The server of server.mjs as an entry of `mcpServers`. */
export const byHand = (...args) => ({
  command: process.execPath,
  args: [fileURLToPath(new URL("server.mjs", import.meta.url)), ...args],
  // Its helper only exits when it is killed.
  leash: { grace: "100ms" },
});

/** A client of one server, after the handshake. */
export class Client {
  #url;
  #headers = { "content-type": "application/json", accept: "application/json, text/event-stream" };
  #id = 0;

  static async open(url) {
    const client = new Client();
    client.#url = url;
    const params = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "test", version: "1" } };
    await client.ask("initialize", params);
    client.#headers["mcp-protocol-version"] = "2025-06-18";
    await client.#post({ method: "notifications/initialized" });
    return client;
  }

  get session() {
    return this.#headers["mcp-session-id"];
  }

  async #post(message) {
    const body = JSON.stringify({ jsonrpc: "2.0", ...message });
    const answer = await fetch(this.#url, { method: "POST", headers: this.#headers, body });
    this.#headers["mcp-session-id"] ??= answer.headers.get("mcp-session-id") ?? undefined;
    return answer;
  }

  /** The result, or an error with the code of JSON-RPC or of HTTP. */
  async ask(method, params) {
    const id = (this.#id += 1);
    const answer = await this.#post({ id, method, params });
    const text = await answer.text();
    if (answer.status !== 200) {
      throw Object.assign(new Error(text), { code: answer.status });
    }
    const isStream = answer.headers.get("content-type").startsWith("text/event-stream");
    const lines = isStream ? text.split("\n").filter((line) => line.startsWith("data:")) : [`data:${text}`];
    const messages = lines.map((line) => line.slice(5).trim()).filter((data) => data !== "").map((data) => JSON.parse(data));
    const { result, error } = messages.find((message) => message.id === id) ?? {};
    if (error !== undefined) {
      throw Object.assign(new Error(error.message), { code: error.code });
    }
    return result;
  }

  async call(name, args = {}) {
    const { content } = await this.ask("tools/call", { name, arguments: args });
    return JSON.parse(content[0].text);
  }
}

/** An HTTP server that counts its sessions. */
export async function upstream() {
  const open = new Set();
  const seen = { opened: 0, deleted: 0, open, credentials: [], refuse: undefined };
  const server = createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) {
      parts.push(part);
    }
    const session = request.headers["mcp-session-id"];
    if (request.method === "DELETE" && seen.refuse !== undefined) {
      response.writeHead(seen.refuse).end();
      return;
    }
    if (request.method === "DELETE") {
      seen.credentials.push(request.headers.authorization);
      seen.deleted += open.delete(session) ? 1 : 0;
      response.writeHead(200).end();
      return;
    }
    if (request.method !== "POST") {
      response.writeHead(405).end();
      return;
    }
    const { id, method, params } = JSON.parse(Buffer.concat(parts).toString());
    const headers = { "content-type": "application/json" };
    if (method === "initialize") {
      seen.opened += 1;
      headers["mcp-session-id"] = `up-${seen.opened}-${process.pid}`;
      open.add(headers["mcp-session-id"]);
    }
    if (id === undefined) {
      response.writeHead(202).end();
      return;
    }
    if (method === "tools/call" && params.name === "hang") {
      return;
    }
    const { protocolVersion } = params ?? {};
    const result =
      method === "initialize"
        ? { protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "web", version: "1" } }
        : { content: [{ type: "text", text: JSON.stringify(params?.arguments ?? null) }] };
    response.writeHead(200, headers).end(JSON.stringify({ jsonrpc: "2.0", id, result }));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  server.unref();
  const url = `http://127.0.0.1:${server.address().port}/mcp`;
  return { url, seen, close: () => (server.close(), server.closeAllConnections?.()) };
}

/** Polls until `look` returns a value. */
export async function until(what, look) {
  const deadline = Date.now() + 120_000;
  for (;;) {
    if (await look()) {
      return;
    }
    if (Date.now() > deadline) {
      throw new Error(`waited in vain for ${what}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** True if a process exists and is not a zombie. */
export async function isAlive(pid) {
  const { readFile } = await import("node:fs/promises");
  try {
    const stat = await readFile(`/proc/${pid}/stat`, "utf8");
    return !["Z", "X"].includes(stat.slice(stat.lastIndexOf(")") + 2)[0]);
  } catch {
    return false;
  }
}
