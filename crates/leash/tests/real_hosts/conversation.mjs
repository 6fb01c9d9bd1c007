// The conversation of every TypeScript host here, for all SDKs:
//
//     node ts1.mjs close|wait COMMAND ARG...
//
// It starts the server, lists its tools, calls two of them (the second reports progress), prints the results in one
// line `READY {json}`, and then either closes the client and exits (`close`) or stays until it is killed (`wait`).

import { createRequire } from "node:module";
import { join } from "node:path";

// The packages are in target/deps/npm, where the host is started, and not beside this file.
export const require = createRequire(join(process.cwd(), "package.json"));

// `callTool(client, params, options)` hides the only relevant difference between the SDKs.
export async function converse({ Client, StdioClientTransport, callTool }) {
  const [ending, command, ...args] = process.argv.slice(2);
  if (!["close", "wait"].includes(ending) || !command) {
    throw new Error("usage: HOST close|wait COMMAND ARG...");
  }
  // By default the SDKs pass on six variables only. The tests need theirs (LEASH_RUNTIME_DIR and similar).
  const transport = new StdioClientTransport({ command, args, env: process.env });
  const client = new Client({ name: "leash-test-host", version: "1.0.0" });
  await client.connect(transport);

  const { tools } = await client.listTools();
  const echo = await callTool(client, { name: "echo", arguments: { message: "hello" } });
  const progress = listen(transport);
  const long = await callTool(
    client,
    { name: "trigger-long-running-operation", arguments: { duration: 0.3, steps: 3 } },
    { onprogress: () => {} },
  );

  const saw = {
    server: client.getServerVersion(),
    capabilities: client.getServerCapabilities(),
    tools,
    echo: echo.content,
    long: long.content,
    progress,
  };
  process.stdout.write(`READY ${JSON.stringify(saw)}\n`);

  if (ending === "wait") {
    await new Promise(() => setInterval(() => {}, 1 << 30));
  }
  await client.close();
  process.stdout.write("CLOSED\n");
}

// Collects progress reports from the transport from now on. The SDK's own callback misses some: if the last report and
// the answer arrive in one read, SDK 1 has already forgotten the callback.
function listen(transport) {
  const progress = [];
  const { onmessage } = transport;
  transport.onmessage = (message, ...rest) => {
    if (message.method === "notifications/progress") {
      progress.push([message.params.progress, message.params.total]);
    }
    onmessage(message, ...rest);
  };
  return progress;
}
