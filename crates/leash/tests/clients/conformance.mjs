// The client for the conformance suite's client scenarios: uses everything that a server offers.
//
//     node conformance.mjs http URL
//     node conformance.mjs stdio COMMAND ARG... URL
//
// The suite appends the URL, and sets the revision and, for some scenarios, the calls in the environment. Over stdio
// the suite does not test this program but COMMAND, which connects it to the URL.

import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(join(process.cwd(), "package.json"));
const { Client, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");
const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");

const [kind, ...target] = process.argv.slice(2);
const isModern = process.env.MCP_CONFORMANCE_PROTOCOL_VERSION === "2026-07-28";
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? "{}");

const transport =
  kind === "http"
    ? new StreamableHTTPClientTransport(new URL(target[0]))
    : new StdioClientTransport({ command: target[0], args: target.slice(1), env: process.env });

const client = new Client(
  { name: "leash-conformance-client", version: "1.0.0" },
  {
    capabilities: { roots: {}, sampling: {}, elicitation: { form: { applyDefaults: true } } },
    versionNegotiation: { mode: isModern ? { pin: "2026-07-28" } : "legacy" },
  },
);
client.setRequestHandler("roots/list", () => ({ roots: [] }));
client.setRequestHandler("sampling/createMessage", () => ({
  model: "leash-test-model",
  role: "assistant",
  content: { type: "text", text: "four" },
}));
client.setRequestHandler("elicitation/create", ({ params }) => ({
  action: "accept",
  content: Object.fromEntries(
    Object.entries(params.requestedSchema?.properties ?? {})
      .filter(([, schema]) => schema.default === undefined)
      .map(([name, schema]) => [name, example(schema)]),
  ),
}));

// One scenario wants the schema of its first tool back.
let firstSchema = {};

function example(schema) {
  return { number: 5, integer: 5, boolean: true, object: firstSchema }[schema.type] ?? "text";
}

function examples({ properties = {}, required = [] }) {
  return Object.fromEntries(required.map((name) => [name, example(properties[name] ?? {})]));
}

// A failed step does not stop the others: the suite judges.
async function attempt(what, act) {
  try {
    return await act();
  } catch (error) {
    console.error(`${what}: ${error.message}`);
    return undefined;
  }
}

await client.connect(transport);
const capabilities = client.getServerCapabilities() ?? {};

if (capabilities.tools) {
  const tools = (await attempt("tools/list", () => client.listTools()))?.tools ?? [];
  firstSchema = tools[0]?.inputSchema ?? {};
  const calls = context.toolCalls ?? tools.map((tool) => ({ name: tool.name, arguments: examples(tool.inputSchema) }));
  for (const call of calls) {
    await attempt(call.name, () => client.callTool(call));
  }
}
if (capabilities.resources) {
  const resources = (await attempt("resources/list", () => client.listResources()))?.resources ?? [];
  for (const { uri } of resources) {
    await attempt(uri, () => client.readResource({ uri }));
  }
}
if (capabilities.prompts) {
  const prompts = (await attempt("prompts/list", () => client.listPrompts()))?.prompts ?? [];
  for (const { name, arguments: parameters = [] } of prompts) {
    const given = Object.fromEntries(parameters.map((parameter) => [parameter.name, "text"]));
    await attempt(name, () => client.getPrompt({ name, arguments: given }));
  }
}
await client.close();
