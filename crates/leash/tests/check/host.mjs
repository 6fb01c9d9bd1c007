// A host written with @modelcontextprotocol/sdk 1.x, or with @modelcontextprotocol/client 2.x, that connects to every
// server in its configuration:
//
//     node host.mjs careful|closes|careless [2]
//
// When it is told to exit, a `careful` host ends its sessions and closes its clients. A `closes` host only closes them,
// as the SDK does by itself. A `careless` host just exits. The end of its stdin or a signal tells it to exit.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

// The packages are in target/deps/npm, where the host is started, and not beside this file.
const require = createRequire(join(process.cwd(), "package.json"));
const [manner, line] = process.argv.slice(2);
const packages =
  line === "2"
    ? ["@modelcontextprotocol/client", "@modelcontextprotocol/client/stdio"]
    : ["index", "stdio", "streamableHttp"].map((name) => `@modelcontextprotocol/sdk/client/${name}.js`);
const { Client, StdioClientTransport, StreamableHTTPClientTransport } = Object.assign({}, ...packages.map(require));
if (!["careful", "closes", "careless"].includes(manner)) {
  throw new Error("usage: host.mjs careful|closes|careless [2]");
}

const { mcpServers } = JSON.parse(readFileSync(process.env.LEASH_CHECK_CONFIG, "utf8"));
const clients = [];
for (const { command, args, url } of Object.values(mcpServers)) {
  const transport = url
    ? new StreamableHTTPClientTransport(new URL(url))
    : new StdioClientTransport({ command, args, env: process.env, stderr: "ignore" });
  const client = new Client({ name: "leash-test-host", version: "1.0.0" });
  await client.connect(transport);
  await client.listTools();
  clients.push({ client, transport });
}

async function leave() {
  if (manner === "careful") {
    await Promise.all(clients.map(({ transport }) => transport.terminateSession?.()));
  }
  await Promise.all(clients.map(({ client }) => client.close()));
  process.exit(0);
}

process.stdin.on("end", manner === "careless" ? () => process.exit(0) : leave).resume();
if (manner !== "careless") {
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) {
    process.on(signal, leave);
  }
}
setInterval(() => {}, 1 << 30);
