// The acts of every TypeScript client here, for all SDKs:
//
//     node sdk1.mjs MODE ACT,ACT,... http URL
//     node client2.mjs MODE ACT,ACT,... stdio COMMAND ARG...
//
// MODE is legacy, auto or modern. Each act ends with one line of JSON on stdout with its result. The last act is one
// that ends the client: close, terminate, obey, hang or vanish.
//
// The server is the fixture, or a gateway with the fixture behind it. acts.py is the same for Python.

import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";

// The packages are in target/deps/npm, where the client is started, and not beside this file.
export const require = createRequire(join(process.cwd(), "package.json"));

// Longer than any act should take, and shorter than the timeout of the test.
const LIMIT = 30_000;

// The duration of a call that the test interrupts, and of a call that must never be answered.
const LONG = 1_000;
const ENDLESS = 600_000;

// Every server that tests start knows one of them.
const ENDLESS_CALLS = [
  { name: "hang", arguments: {} },
  { name: "sleep", arguments: { ms: ENDLESS, steps: 1 } },
  { name: "trigger-long-running-operation", arguments: { duration: 600, steps: 1 } },
];

const say = (act, outcome) => process.stdout.write(`${JSON.stringify({ act, ...outcome })}\n`);

const text = (result) => result.content.map((part) => part.text).join("");

// `sdk` hides the relevant differences between the SDKs.
export async function play(sdk) {
  const [mode, list, kind, ...target] = process.argv.slice(2);
  const acts = list?.split(",") ?? [];
  if (!["http", "stdio"].includes(kind) || target.length === 0 || acts.some((act) => !(act in ACTS))) {
    throw new Error(`usage: CLIENT MODE ACT,ACT,... http URL | stdio COMMAND ARG...; an ACT is one of ${Object.keys(ACTS)}`);
  }
  const transport = kind === "http" ? http(sdk, target[0]) : stdio(sdk, target);
  const client = sdk.client(mode, { name: "leash-test-client", version: "1.0.0" }, { sampling: {}, elicitation: {} });
  sdk.answer(client, "sampling/createMessage", () => ({
    model: "leash-test-model",
    role: "assistant",
    content: { type: "text", text: "four" },
  }));
  sdk.answer(client, "elicitation/create", () => ({ action: "accept", content: { name: "Ada" } }));
  await client.connect(transport);
  say("connect", { server: client.getServerVersion()?.name, version: sdk.version(client, transport) });

  const stage = { sdk, client, transport, reports: listen(transport) };
  for (const act of acts) {
    try {
      say(act, await ACTS[act](stage));
    } catch (error) {
      say(act, { error: error.message, code: error.code });
    }
  }
}

function http(sdk, url) {
  const bearer = process.env.MCP_CLIENT_BEARER;
  const requestInit = bearer ? { headers: { Authorization: `Bearer ${bearer}` } } : undefined;
  return new sdk.Http(new URL(url), { requestInit });
}

// By default the SDKs pass on six variables only. The tests need theirs (LEASH_RUNTIME_DIR and similar).
function stdio(sdk, [command, ...args]) {
  return new sdk.Stdio({ command, args, env: process.env });
}

// Collects progress reports from the transport, and notifies the waiter for the next one. The SDK's own callback misses
// some: if the last report and the answer arrive in one read, SDK 1 has already forgotten the callback.
function listen(transport) {
  const reports = { seen: [], next: null };
  const { onmessage } = transport;
  transport.onmessage = (message, ...rest) => {
    if (message.method === "notifications/progress") {
      reports.seen.push([message.params.progress, message.params.total]);
      reports.next?.();
    }
    onmessage(message, ...rest);
  };
  return reports;
}

// Makes a call that reports its progress, and calls `started` at the first report.
async function sleep({ sdk, client, reports }, { ms, steps, started, signal }) {
  reports.seen = [];
  reports.next = () => {
    reports.next = null;
    started?.();
  };
  const result = await sdk.callTool(
    client,
    { name: "sleep", arguments: { ms, steps } },
    { onprogress: () => {}, timeout: LIMIT, signal },
  );
  return { text: text(result), reports: reports.seen };
}

async function census({ sdk, client }) {
  return JSON.parse(text(await sdk.callTool(client, { name: "census", arguments: {} })));
}

const ACTS = {
  async list({ client }) {
    const { tools } = await client.listTools();
    const { resources } = await client.listResources();
    const { prompts } = await client.listPrompts();
    return {
      tools: tools.map((tool) => tool.name),
      resources: resources.map((resource) => resource.uri),
      prompts: prompts.map((prompt) => prompt.name),
    };
  },

  async call({ sdk, client }) {
    return { text: text(await sdk.callTool(client, { name: "echo", arguments: { message: "hello, wörld ✓" } })) };
  },

  // The tool counts its calls in a session: a client that gets 1 and 2 had the same session twice.
  async count({ sdk, client }) {
    const count = async () => text(await sdk.callTool(client, { name: "counter", arguments: {} }));
    return { counts: [await count(), await count()] };
  },

  progress(stage) {
    return sleep(stage, { ms: 200, steps: 4 });
  },

  // Cancels a call in the middle. The server reports whether it saw the cancellation.
  async cancel(stage) {
    const before = await census(stage);
    const abort = new AbortController();
    const call = sleep(stage, { ms: ENDLESS, steps: 1, started: () => abort.abort(), signal: abort.signal });
    const cut = await call.then(() => "answered", () => "cancelled");
    for (;;) {
      const after = await census(stage);
      if (after.cancelled > before.cancelled || after.asleep === 0) {
        return { call: cut, cancelled: after.cancelled - before.cancelled };
      }
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  },

  async sampling({ sdk, client }) {
    return { text: text(await sdk.callTool(client, { name: "sample", arguments: { prompt: "2 + 2" } })) };
  },

  async elicitation({ sdk, client }) {
    return { text: text(await sdk.callTool(client, { name: "elicit", arguments: { message: "Who are you?" } })) };
  },

  // Prints a line when the call is under way. The test then cuts the connection, and the answer has to arrive on
  // another one.
  async resume(stage) {
    const { text } = await sleep(stage, { ms: LONG, steps: 1, started: () => say("resume", { started: true }) });
    return { text };
  },

  // The same for a call that is never answered.
  async wait(stage) {
    const { text } = await sleep(stage, { ms: ENDLESS, steps: 1, started: () => say("wait", { started: true }) });
    return { text };
  },

  // Most programs do only this.
  async close({ client }) {
    await client.close();
    return {};
  },

  // The specification asks for this.
  async terminate({ client, transport }) {
    await transport.terminateSession?.();
    await client.close();
    return {};
  },

  // Follows orders from stdin, line by line, until one tells it to end or stdin ends.
  async obey(stage) {
    const { sdk, client, transport } = stage;
    for await (const line of createInterface({ input: process.stdin })) {
      if (line === "call") {
        say("call", await ACTS.call(stage).catch((error) => ({ error: error.message })));
      } else if (line === "abandon") {
        for (const params of ENDLESS_CALLS) {
          sdk.callTool(client, params, { timeout: ENDLESS }).catch(() => {});
        }
      } else if (line === "delete") {
        say("delete", await Promise.resolve(transport.terminateSession?.()).then(() => ({}), (error) => ({ error: error.message })));
      } else if (line === "close") {
        break;
      }
    }
    await client.close();
    process.exit(0);
  },

  async hang() {
    say("hang", { pid: process.pid });
    await new Promise(() => setInterval(() => {}, 1 << 30));
  },

  vanish() {
    say("vanish", {});
    process.exit(0);
  },
};
