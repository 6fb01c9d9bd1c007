// leashedHttp under the official SDKs, against a real leash: LEASH_BIN.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import { createInterface } from "node:readline";
import test from "node:test";
import { fileURLToPath } from "node:url";

import { allGone } from "mcp-leash";
import { leashedHttp } from "mcp-leash/sdk";

import { until, upstream } from "../mcp.mjs";
import { alive, connected, sdks } from "./sdks.mjs";

const credentials = { requestInit: { headers: { authorization: "Bearer hush" } } };

for (const [index, sdk] of sdks.entries()) {
  const open = async (web) => {
    const transport = leashedHttp(new sdk.Http(new URL(web.url), credentials));
    return { transport, ...(await connected(sdk, transport)) };
  };

  test(`${sdk.name}: close sends DELETE once, and the receipt says so`, async () => {
    const web = await upstream();
    const { transport, client, seen, call } = await open(web);
    assert.deepEqual(await call("echo", { a: 1 }), { a: 1 });
    assert.deepEqual([web.seen.open.size, transport.receipt], [1, undefined]);
    await client.close();
    assert.deepEqual([web.seen.deleted, web.seen.open.size, web.seen.credentials], [1, 0, ["Bearer hush"]]);
    assert.ok(allGone(transport.receipt));
    assert.deepEqual([transport.receipt.session, transport.receipt.holdings[0].how], [transport.session, "deleted"]);
    await transport.close();
    assert.deepEqual([seen.closes, web.seen.deleted], [1, 1]);
    web.close();
  });

  test(`${sdk.name}: close while a call is in flight`, async () => {
    const web = await upstream();
    const { client, call } = await open(web);
    const hanging = assert.rejects(call("hang"));
    await client.close();
    assert.deepEqual([web.seen.deleted, web.seen.open.size], [1, 0]);
    await hanging;
    web.close();
  });

  test(`${sdk.name}: a session that the server does not let go is not called gone`, async () => {
    const web = await upstream();
    const { transport, client } = await open(web);
    web.seen.refuse = 405;
    await client.close();
    assert.ok(!allGone(transport.receipt));
    assert.equal(transport.receipt.holdings[0].how, "unsupported");
    web.close();
  });

  test(`${sdk.name}: a session that the host ends itself is deleted once`, async () => {
    const web = await upstream();
    const { transport, client } = await open(web);
    await transport.terminateSession();
    await client.close();
    assert.deepEqual([web.seen.deleted, transport.receipt.holdings.length], [1, 1]);
    web.close();
  });

  test(`${sdk.name}: credentials are neither on disk nor on a command line`, async () => {
    const web = await upstream();
    const { transport, client } = await open(web);
    const { connect } = await guardOf(transport);
    const shown = [fs.readFileSync(`/proc/${connect}/cmdline`, "utf8"), fs.readFileSync(`/proc/${connect}/environ`, "utf8")];
    const ledger = process.env.LEASH_RUNTIME_DIR;
    const files = fs.readdirSync(ledger, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
    const texts = files.map((file) => readIfThere(`${file.parentPath ?? file.path}/${file.name}`));
    assert.ok(texts.some((text) => text !== ""));
    assert.ok(![...shown, ...texts].join().includes("hush"));
    await client.close();
    web.close();
  });

  test(`${sdk.name}: SIGKILL of leash ends the session and closes the transport`, async () => {
    const web = await upstream();
    const { transport, seen } = await open(web);
    const { connect } = await guardOf(transport);
    process.kill(connect, "SIGKILL");
    await until("the end", () => seen.closes === 1);
    await transport.close();
    assert.deepEqual([web.seen.deleted, web.seen.open.size, seen.closes], [1, 0, 1]);
    assert.match(String(seen.errors), /leash has ended the session/);
    await until("the end of leash", async () => (await alive([connect])).length === 0);
    web.close();
  });

  test(`${sdk.name}: SIGKILL of the keeper changes nothing`, async () => {
    const web = await upstream();
    const { transport, client, seen, call } = await open(web);
    const { connect, keeper } = await guardOf(transport);
    process.kill(keeper, "SIGKILL");
    await until("another keeper", async () => (await guardOf(transport)).keeper !== keeper);
    assert.deepEqual(await call("echo", { a: 1 }), { a: 1 });
    assert.deepEqual([web.seen.open.size, seen.closes], [1, 0]);
    await client.close();
    assert.equal(web.seen.deleted, 1);
    // leash's own processes write the receipt first, and then exit.
    await until("the end of leash", async () => (await alive([connect, keeper])).length === 0);
    web.close();
  });

  for (const way of ["exit", "kill"]) {
    test(`${sdk.name}: a host that ends by ${way} leaves neither processes nor a session`, async () => {
      const web = await upstream();
      const words = [fileURLToPath(new URL("host.mjs", import.meta.url)), String(index), way, web.url];
      const host = spawn(process.execPath, words, { stdio: ["ignore", "pipe", "inherit"] });
      const gone = once(host, "exit");
      const [line] = await once(createInterface({ input: host.stdout }), "line");
      const { pids } = JSON.parse(line);
      assert.deepEqual([pids.length, web.seen.opened], [2, 1]);
      if (way === "kill") {
        host.kill("SIGKILL");
      }
      await gone;
      await until("the DELETE", () => web.seen.open.size === 0);
      await until("the end of the tree", async () => (await alive(pids)).length === 0);
      assert.deepEqual([web.seen.deleted, web.seen.credentials], [1, ["Bearer hush"]]);
      web.close();
    });
  }

  test(`${sdk.name}: fifty sessions in a row leave nothing`, async () => {
    const web = await upstream();
    for (let count = 0; count < 50; count += 1) {
      const { transport, client } = await open(web);
      await client.close();
      assert.ok(allGone(transport.receipt));
    }
    assert.deepEqual([web.seen.opened, web.seen.deleted, web.seen.open.size], [50, 50, 0]);
    web.close();
  });
}

test("leashedHttp refuses what is not an HTTP transport", () => {
  assert.throws(() => leashedHttp({}), { code: "invalid-argument" });
});

/** The text of a file; nothing if leash has replaced or removed it meanwhile. */
function readIfThere(file) {
  try {
    return fs.readFileSync(file, "utf8");
  } catch {
    return "";
  }
}

/** The pids of a transport's guard and of its keeper: children of this process and of the guard. */
async function guardOf(transport) {
  const of = (pid) => fs.readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ").filter(Boolean).map(Number);
  const isGuard = (pid) => fs.readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(transport.session);
  const [connect] = of(process.pid).filter(isGuard);
  let keeper;
  await until("the keeper", async () => ([keeper] = await alive(of(connect))) && keeper !== undefined);
  return { connect, keeper };
}
