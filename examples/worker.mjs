// One job, one session: a worker that lives long, and whose jobs leave nothing behind.
//
//     npm install && node worker.mjs < jobs.jsonl
//
// A job is a line of JSON: {"say": TEXT, "through": "url" | "attach", "servers": MCPSERVERS}. Its outcome is a line of JSON on stdout.
// WEB_URL may name an HTTP server that every job uses as well.

import { createInterface } from "node:readline";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { allGone, Leash } from "mcp-leash";

const everything = { command: "npx", args: ["-y", "@modelcontextprotocol/server-everything"] };
const web = process.env.WEB_URL ? { web: { url: process.env.WEB_URL } } : {};

// 1. Connect once. If no daemon runs, this starts one, which ends itself when the worker and all sessions are gone.
const leash = await Leash.connect();

// 2. Receive a job.
for await (const line of createInterface({ input: process.stdin })) {
  const job = JSON.parse(line);
  try {
    // 3. Create a session for it: only this job uses these servers. They run when this returns.
    const session = await leash.session({ mcpServers: job.servers ?? { everything, ...web } });
    let answers;
    let receipt;
    try {
      // 4. Process it.
      answers = await run(job, session);
    } finally {
      // 5. End the session, even if the job failed. When this returns, all of it is gone. (With TypeScript, or Node 24:
      //    `await using session = ...` in 3, and no `finally`.)
      receipt = await session.end();
    }
    report({ session: session.id, answers, gone: allGone(receipt), held: receipt.holdings.map(({ kind, how }) => `${kind} ${how}`) });
  } catch (error) {
    // A failed job is no reason for the worker to exit.
    report({ error: error.code ?? error.name, message: error.message });
  }
}

async function run(job, session) {
  const answers = {};
  for (const server of Object.values(session.servers)) {
    const client = new Client({ name: "worker", version: "1.0.0" });
    await client.connect(job.through === "attach" ? byCommand(server) : new StreamableHTTPClientTransport(new URL(server.url)));
    const { content } = await client.callTool({ name: "echo", arguments: { message: job.say } });
    answers[server.name] = content[0].text;
    await client.close();
  }
  return answers;
}

// For hosts that only take a command. It needs none of our environment.
function byCommand({ command, args }) {
  return new StdioClientTransport({ command, args });
}

function report(outcome) {
  process.stdout.write(`${JSON.stringify(outcome)}\n`);
}
