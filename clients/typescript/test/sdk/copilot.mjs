// A worker with the Copilot SDK. By itself: node copilot.mjs MODEL_URL starts a session and waits to be killed.

import { once } from "node:events";
import fs from "node:fs";
import { createServer } from "node:http";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

import { approveAll, CopilotClient } from "@github/copilot-sdk";
import { leashSession } from "mcp-leash/sdk";

import { byHand } from "../mcp.mjs";

/** A stub of a model with the API of OpenAI: it calls the tool `pids` of every server, and then repeats the answers. */
export async function model() {
  const server = createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) {
      parts.push(part);
    }
    const { messages = [], tools = [] } = parts.length === 0 ? {} : JSON.parse(Buffer.concat(parts).toString());
    const answers = messages.filter(({ role }) => role === "tool").map(({ content }) => content);
    const names = tools.map((tool) => tool.function.name).filter((name) => name.endsWith("-pids"));
    const calls = names.map((name) => ({ id: `call-${name}`, type: "function", function: { name, arguments: "{}" } }));
    const isOver = answers.length > 0;
    const message = { role: "assistant", ...(isOver ? { content: JSON.stringify(answers) } : { content: null, tool_calls: calls }) };
    const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
    const choice = { index: 0, message, finish_reason: isOver ? "stop" : "tool_calls" };
    const answer = { id: "1", object: "chat.completion", created: 1, model: "stub", choices: [choice], usage };
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  server.unref();
  return { url: `http://127.0.0.1:${server.address().port}/v1`, close: () => (server.close(), server.closeAllConnections?.()) };
}

/** A client that uses no account. */
export async function start() {
  const baseDirectory = fs.mkdtempSync(path.join(process.env.HOME ?? os.tmpdir(), "copilot-"));
  const client = new CopilotClient({ baseDirectory, useLoggedInUser: false, logLevel: "error" });
  await client.start();
  return client;
}

/** A session in which the model has called both servers, with the pids of their processes. */
export async function job(client, url) {
  const hand = () => {
    const { command, args } = byHand("--helper");
    return { type: "stdio", command, args, tools: ["*"], leash: { grace: "100ms" } };
  };
  const session = await leashSession(client, {
    model: "stub",
    provider: { type: "openai", baseUrl: url, apiKey: "none" },
    onPermissionRequest: approveAll,
    mcpServers: { first: hand(), second: hand() },
  });
  const { data } = await session.sendAndWait({ prompt: "call the tools" }, 120_000);
  const [other, ...rest] = JSON.parse(data.content).map((text) => JSON.parse(/\[[\d,\s]+\]/.exec(text)[0]));
  return { session, other, pids: [other, ...rest].flat() };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { pids } = await job(await start(), process.argv[2]);
  process.stdout.write(`${JSON.stringify(pids)}\n`);
  setInterval(() => {}, 1 << 30);
}
