// A stdio server without an SDK, for the tests of this module. It starts a process that leaves its session and ignores
// SIGTERM, as leaking servers do.

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const deaf = "for (const s of ['SIGTERM', 'SIGHUP']) process.on(s, () => {}); setInterval(() => {}, 1 << 30)";
const left = process.argv.includes("--helper")
  ? spawn(process.execPath, ["-e", deaf], { detached: true, stdio: "ignore" }).pid
  : undefined;

const tools = {
  pids: () => [process.pid, ...(left === undefined ? [] : [left])],
  env: ({ name }) => process.env[name] ?? null,
  cwd: () => process.cwd(),
  length: ({ text }) => text.length,
  text: ({ length }) => "x".repeat(length),
  complain: ({ text }) => process.stderr.write(`${text}\n`),
  exit: () => process.exit(0),
};

const say = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) {
    continue;
  }
  if (method === "initialize") {
    const { protocolVersion } = params;
    say({ id, result: { protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "by-hand", version: "1" } } });
  } else if (method === "tools/list") {
    const names = [...Object.keys(tools), "hang"];
    say({ id, result: { tools: names.map((name) => ({ name, inputSchema: { type: "object" } })) } });
  } else if (method === "tools/call" && params.name === "hang") {
    // Never answered.
  } else if (method === "tools/call") {
    const text = JSON.stringify(tools[params.name](params.arguments ?? {}));
    say({ id, result: { content: [{ type: "text", text }] } });
  } else {
    say({ id, result: {} });
  }
}
