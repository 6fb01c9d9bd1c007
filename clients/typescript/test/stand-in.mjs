#!/usr/bin/env node
// A stand-in for the program `leash`, controlled by STAND_IN: `fail` prints why it cannot start; `serve` answers at the
// socket of the runtime directory.

import { createServer } from "node:http";
import { appendFileSync } from "node:fs";
import { join } from "node:path";

const dir = process.env.LEASH_RUNTIME_DIR;
appendFileSync(join(dir, "started"), `${process.argv.slice(2).join(" ")}\n`);
if (process.env.STAND_IN === "fail") {
  process.stderr.write("error: it is broken\n");
  process.exit(125);
}
const server = createServer((request, response) => {
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify({ version: "stand-in", pid: process.pid, api: 1, sessions: [] }));
});
server.on("error", () => process.exit(0));
server.listen(join(dir, "control.sock"));
// It exits with the test that started it.
setInterval(() => {
  try {
    process.kill(Number(process.argv[process.argv.indexOf("--starter") + 1]), 0);
  } catch {
    process.exit(0);
  }
}, 50);
