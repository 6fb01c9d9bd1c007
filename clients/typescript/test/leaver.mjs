// A worker that does not end its session: node leaver.mjs exit|kill URL OWNER

import { Leash } from "mcp-leash";

import { byHand, Client } from "./mcp.mjs";

const [way, url, owner] = process.argv.slice(2);
const leash = await Leash.connect();
const session = await leash.session({
  mcpServers: { hand: byHand("--helper"), web: { url } },
  owner: JSON.parse(owner) ?? undefined,
});
const pids = await (await Client.open(session.servers.hand.url)).call("pids");
await Client.open(session.servers.web.url);
process.stdout.write(`${JSON.stringify({ id: session.id, pids })}\n`, () => {
  if (way === "exit") {
    process.exit(0);
  }
  setInterval(() => {}, 1 << 30);
});
