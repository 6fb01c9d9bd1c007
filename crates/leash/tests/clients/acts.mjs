// What every TypeScript client here can do, whichever SDK it is written with:
//
//     node sdk1.mjs MODE ACT,ACT,... http URL
//     node client2.mjs MODE ACT,ACT,... stdio COMMAND ARG...
//
// MODE is legacy, auto or modern. Each act ends with one line of JSON on stdout that says what came of it. The last act
// is one of those after which nothing is left to do: close, terminate, obey, hang or vanish.
//
// The server is the fixture, or whatever has the fixture behind it. acts.py is the same for Python.

import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";

// The packages live in target/deps/npm, where the client is started, and not beside this file.
export const require = createRequire(join(process.cwd(), "package.json"));

// Longer than anything should take, and shorter than the patience of the test.
const LIMIT = 30_000;

// How long a call is that is to be cut in the middle, and one that shall not be answered at all.
const LONG = 1_000;
const ENDLESS = 600_000;

// One of them is known to every server that tests start.
const ENDLESS_CALLS = [
  { name: "hang", arguments: {} },
  { name: "sleep", arguments: { ms: ENDLESS, steps: 1 } },
  { name: "trigger-long-running-operation", arguments: { duration: 600, steps: 1 } },
];

const say = (act, outcome) => process.stdout.write(`${JSON.stringify({ act, ...outcome })}\n`);

const text = (result) => result.content.map((part) => part.text).join("");

// `sdk` hides the differences between the SDKs that show here.
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

// By default the SDKs hand down six variables only. The tests need theirs (LEASH_RUNTIME_DIR and the like).
function stdio(sdk, [command, ...args]) {
  return new sdk.Stdio({ command, args, env: process.env });
}

// The reports that arrive, as the transport hands them over, and whoever waits for the next one. The SDK's own callback
// does not see all of them: when the last one and the answer come in one read, SDK 1 has already forgotten whom to call.
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

// A call that reports its progress. `started` is called when the first report is there.
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

  // The tool counts its calls in a session: who is answered 1 and 2 had the same one.
  async count({ sdk, client }) {
    const count = async () => text(await sdk.callTool(client, { name: "counter", arguments: {} }));
    return { counts: [await count(), await count()] };
  },

  progress(stage) {
    return sleep(stage, { ms: 200, steps: 4 });
  },

  // Cancels a call in the middle. The server says whether it heard of it.
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

  // Says when the call is under way: then somebody cuts the connection, and the answer has to come by another one.
  async resume(stage) {
    const { text } = await sleep(stage, { ms: LONG, steps: 1, started: () => say("resume", { started: true }) });
    return { text };
  },

  // The same, but nobody will ever know the answer.
  async wait(stage) {
    const { text } = await sleep(stage, { ms: ENDLESS, steps: 1, started: () => say("wait", { started: true }) });
    return { text };
  },

  // All that most programs do.
  async close({ client }) {
    await client.close();
    return {};
  },

  // What the specification wants.
  async terminate({ client, transport }) {
    await transport.terminateSession?.();
    await client.close();
    return {};
  },

  // Does what stdin asks for, line by line, until it asks for the end or has one.
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
