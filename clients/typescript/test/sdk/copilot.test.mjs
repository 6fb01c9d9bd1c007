// leashSession with the real Copilot SDK and its runtime, and a stub in place of the model.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import test, { after } from "node:test";
import { fileURLToPath } from "node:url";

import { allGone } from "mcp-leash";

import { until } from "../mcp.mjs";
import { job, model, start } from "./copilot.mjs";
import { alive } from "./sdks.mjs";

const web = await model();
const client = await start();
after(async () => {
  await client.stop();
  web.close();
});

for (const [way, end] of [
  ["disconnect", (session) => session.disconnect()],
  ["deleteSession", (session) => client.deleteSession(session.sessionId)],
  ["await using", (session) => session[Symbol.asyncDispose]()],
]) {
  test(`when ${way} returns, the servers of the session are gone`, async () => {
    const { session, pids, other } = await job(client, web.url);
    assert.deepEqual([await alive(pids), pids.length, other.length], [pids, 4, 2]);
    await end(session);
    assert.deepEqual(await alive(pids), []);
    assert.deepEqual(session.receipts.map(({ name }) => name).sort(), ["first", "second"]);
    assert.ok(session.receipts.every(allGone));
  });
}

test("ending one session leaves the servers of another alone", async () => {
  const one = await job(client, web.url);
  const two = await job(client, web.url);
  await one.session.disconnect();
  assert.deepEqual([await alive(one.pids), await alive(two.pids)], [[], two.pids]);
  await two.session.disconnect();
  assert.deepEqual(await alive(two.pids), []);
});

test("a worker that is killed leaves no server", async () => {
  const words = [fileURLToPath(new URL("copilot.mjs", import.meta.url)), web.url];
  const worker = spawn(process.execPath, words, { stdio: ["ignore", "pipe", "inherit"] });
  const gone = once(worker, "exit");
  const [line] = await once(createInterface({ input: worker.stdout }), "line");
  const pids = JSON.parse(line);
  assert.equal((await alive(pids)).length, 4);
  worker.kill("SIGKILL");
  await gone;
  await until("the end of the servers", async () => (await alive(pids)).length === 0);
});
