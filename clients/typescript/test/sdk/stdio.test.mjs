// LeashedStdioClientTransport under the official SDKs, against a real leash: LEASH_BIN.

import assert from "node:assert/strict";
import { once } from "node:events";
import fs from "node:fs";
import os from "node:os";
import test from "node:test";

import { allGone } from "mcp-leash";
import { LeashedStdioClientTransport } from "mcp-leash/sdk";

import { until } from "../mcp.mjs";
import { alive, connected, processesOf, sdks, stubborn } from "./sdks.mjs";

const descriptors = () => fs.readdirSync("/proc/self/fd").length;

for (const sdk of sdks) {
  const open = async (more) => {
    const transport = new LeashedStdioClientTransport(stubborn(more));
    return { transport, ...(await connected(sdk, transport)) };
  };

  test(`${sdk.name}: when close returns, the tree is gone and the receipt is there`, async () => {
    const { transport, client, seen, call } = await open();
    const pids = await call("pids");
    assert.equal(transport.pid, pids[0]);
    assert.deepEqual([await alive(pids), transport.receipt], [pids, undefined]);
    await client.close();
    assert.deepEqual(await alive(pids), []);
    assert.ok(allGone(transport.receipt));
    assert.deepEqual([transport.receipt.session, transport.receipt.reason], [transport.session, { kind: "stdin_closed" }]);
    assert.equal(transport.receipt.holdings[0].members, 2);
    await transport.close();
    assert.deepEqual([seen.closes, transport.pid], [1, null]);
    await assert.rejects(transport.send({ jsonrpc: "2.0", method: "notifications/x" }), /Not connected/);
  });

  test(`${sdk.name}: close while a call is in flight`, async () => {
    const { client, seen, call } = await open();
    const pids = await call("pids");
    const hanging = assert.rejects(call("hang"));
    await client.close();
    assert.deepEqual([await alive(pids), seen.closes], [[], 1]);
    await hanging;
  });

  test(`${sdk.name}: connect fails with the reason of leash if the server cannot start`, async () => {
    const transport = new LeashedStdioClientTransport({ command: "/does/not/exist", stderr: "ignore" });
    await assert.rejects(connected(sdk, transport), { code: "server-failed", message: /`\/does\/not\/exist` was not found/ });
    assert.deepEqual(transport.receipt.reason.why, { kind: "not_found", command: "/does/not/exist" });
    const nowhere = new LeashedStdioClientTransport({ command: "true", cwd: "/no/such/directory", stderr: "ignore" });
    await assert.rejects(connected(sdk, nowhere), { code: "server-failed", message: /\/no\/such\/directory/ });
  });

  test(`${sdk.name}: long messages in both directions`, async () => {
    const { client, call } = await open();
    const length = 1_000_000;
    assert.equal(await call("length", { text: "ü".repeat(length) }), length);
    assert.equal((await call("text", { length })).length, length);
    await client.close();
  });

  test(`${sdk.name}: a message over maxBufferSize ends the server`, async () => {
    const { transport, seen, call } = await open({ maxBufferSize: 100_000 });
    const pids = await call("pids");
    await assert.rejects(call("text", { length: 200_000 }));
    await until("the end", () => seen.closes === 1);
    assert.match(String(seen.errors), /longer than 100000 bytes/);
    assert.ok(allGone(transport.receipt));
    assert.deepEqual(await alive(pids), []);
  });

  test(`${sdk.name}: environment, directory and stderr are those of the official transport`, async () => {
    process.env.NOT_FOR_SERVERS = "1";
    const transport = new LeashedStdioClientTransport(stubborn({ env: { MINE: "yes" }, cwd: "/usr", stderr: "pipe" }));
    const said = once(transport.stderr, "data");
    const { client, call } = await connected(sdk, transport);
    assert.deepEqual([await call("cwd"), await call("env", { name: "MINE" })], ["/usr", "yes"]);
    assert.equal(await call("env", { name: "HOME" }), process.env.HOME);
    assert.equal(await call("env", { name: "NOT_FOR_SERVERS" }), null);
    await call("complain", { text: "something" });
    assert.equal(String(await said), "something\n");
    await client.close();
  });

  test(`${sdk.name}: a server that exits closes the transport once`, async () => {
    const { transport, seen, call } = await open();
    const pids = await call("pids");
    await assert.rejects(call("exit"));
    await until("the end", () => seen.closes === 1);
    assert.ok(allGone(transport.receipt));
    assert.deepEqual(await alive(pids), []);
    await transport.close();
    assert.equal(seen.closes, 1);
  });

  for (const victims of [["leash"], ["keeper"], ["server"], ["leash", "keeper"]]) {
    test(`${sdk.name}: SIGKILL of ${victims.join(" and ")} leaves nothing, and close returns`, async () => {
      const { transport, seen, call } = await open();
      const pids = await call("pids");
      const { supervisor, keeper } = await processesOf(transport.session);
      const known = { leash: supervisor.pid, keeper: keeper.pid, server: transport.pid };
      for (const victim of victims) {
        process.kill(known[victim], "SIGKILL");
      }
      await until("the end", () => seen.closes === 1);
      assert.deepEqual(await alive(pids), []);
      // leash's own processes write the receipt first, and then exit.
      await until("the end of leash", async () => (await alive([known.leash, known.keeper])).length === 0);
      assert.equal(transport.receipt.session, transport.session);
      await transport.close();
      assert.equal(seen.closes, 1);
    });
  }

  test(`${sdk.name}: fifty sessions in a row leave nothing`, async () => {
    const all = [];
    const before = descriptors();
    for (let count = 0; count < 50; count += 1) {
      const transport = new LeashedStdioClientTransport(stubborn({ leash: { grace: "0s" } }));
      const { client, call } = await connected(sdk, transport);
      all.push(...(await call("pids")));
      await client.close();
      assert.ok(allGone(transport.receipt));
    }
    assert.deepEqual([all.length, await alive(all)], [100, []]);
    // Node closes them some turns of its loop later.
    await until(`at most ${before + 2} descriptors`, () => descriptors() <= before + 2);
  });
}

// The client of SDK 2.x asks a second server, made from the parameters of the transport, which protocol it speaks.
test("2.x: the server that is only asked for its protocol is on the leash, too", async () => {
  const { Client } = sdks[1];
  const seen = [];
  class Counted extends LeashedStdioClientTransport {
    constructor(server) {
      super(server);
      seen.push(this);
    }
    _dispose() {
      return super._dispose();
    }
  }
  const client = new Client({ name: "test", version: "1" }, { versionNegotiation: { mode: "auto" } });
  await client.connect(new Counted(stubborn()));
  assert.equal(seen.length, 2);
  assert.ok(allGone(seen[1].receipt));
  await client.close();
  assert.ok(allGone(seen[0].receipt));
});

test("a transport without leash says so", async () => {
  const bin = process.env.LEASH_BIN;
  process.env.LEASH_BIN = "/no/leash/here";
  try {
    const transport = new LeashedStdioClientTransport({ command: "true" });
    await assert.rejects(transport.start(), { code: "no-leash" });
    await assert.rejects(transport.start(), /already started/);
    await transport.close();
  } finally {
    process.env.LEASH_BIN = bin;
  }
});

test("options of leash are words of its command line", async () => {
  const dir = fs.mkdtempSync(`${os.tmpdir()}/sdk-`);
  const options = { name: "mine", label: { team: "red" }, spare: [], verbose: false, grace: "100ms" };
  const transport = new LeashedStdioClientTransport(stubborn({ leash: options, cwd: dir }));
  const { client } = await connected(sdks[0], transport);
  await client.close();
  fs.rmdirSync(dir);
  assert.deepEqual([transport.receipt.name, transport.receipt.labels], ["mine", { team: "red" }]);
});
