// A worker under load: node --expose-gc load.mjs ORDER
//
// ORDER is JSON: {module, mcp, jobs, lanes, waits, lane: [MCPSERVERS...]}. Each lane does one job after another with
// its own servers, all lanes at the same time, until `jobs` are done. After each job the worker prints a line. With
// `waits` the lane then pauses until it gets a line, so that the test can check what is left.

import { createInterface } from "node:readline";

const order = JSON.parse(process.argv[2]);
const { allGone, Leash } = await import(order.module);
const { Client } = await import(order.mcp);

const say = (what) => process.stdout.write(`${JSON.stringify(what)}\n`);

// The lanes that wait for a line.
const waiting = new Map();
const words = createInterface({ input: process.stdin });
words.on("line", (lane) => waiting.get(Number(lane))?.());
const word = (lane) => new Promise((resolve) => waiting.set(lane, resolve));

const leash = await Leash.connect();
say({ at: "ready", daemon: (await leash.version()).pid });

const seen = new Set();
let next = 0;
async function work(lane) {
  while (next < order.jobs) {
    const job = (next += 1);
    const servers = structuredClone(order.lane[lane]);
    for (const server of Object.values(servers)) {
      if (server.command !== undefined) {
        // A mark of the test, which the test searches for in process environments.
        server.env = { LEASH_TEST_JOB: `${process.pid}.${job}` };
      }
    }
    const session = await leash.session({ mcpServers: servers, name: `job ${job}` });
    const clients = await Promise.all(Object.values(session.servers).map(({ url }) => Client.open(url)));
    await Promise.all(clients.map((client) => client.ask("tools/call", { name: "echo", arguments: { message: "x", text: "x" } })));
    const number = Object.values(session.servers).findIndex(({ kind }) => kind === "http");
    const about = { lane, mark: `${process.pid}.${job}`, upstream: clients[number]?.session };
    if (order.waits && !seen.has(lane)) {
      // Once in each lane the worker pauses, so that the test can see the running job.
      seen.add(lane);
      const told = word(lane);
      say({ at: "running", ...about });
      await told;
    }
    const receipt = await session.end();
    const told = order.waits ? word(lane) : undefined;
    globalThis.gc?.();
    say({
      at: "done",
      ...about,
      gone: allGone(receipt),
      held: receipt.holdings.map(({ kind }) => kind).sort(),
      heap: process.memoryUsage().heapUsed,
      receipt,
    });
    await told;
  }
}

await Promise.all(order.lane.map((_, lane) => work(lane)));
words.close();
say({ at: "end" });
