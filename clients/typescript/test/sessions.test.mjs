// Against a real leash: LEASH_BIN, or `leash` on the PATH.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import test from "node:test";
import { fileURLToPath } from "node:url";

import { allGone, Leash, LeashError } from "mcp-leash";

import { byHand, Client, isAlive, until, upstream } from "./mcp.mjs";

const leash = await Leash.connect();
const code = (wanted) => (error) => error instanceof LeashError && error.code === wanted;

async function alive(pids) {
  const found = [];
  for (const pid of pids) {
    if (await isAlive(pid)) {
      found.push(pid);
    }
  }
  return found;
}

test("when end returns, every process is gone and every upstream session deleted", async () => {
  const web = await upstream();
  const session = await leash.session({
    mcpServers: { hand: byHand("--helper"), web: { url: web.url } },
    name: "a job",
    labels: { job: "1" },
  });
  assert.deepEqual(Object.keys(session.servers).sort(), ["hand", "web"]);
  assert.deepEqual(session.owner, { kind: "pid", pid: process.pid });
  const hand = await Client.open(session.servers.hand.url);
  const pids = await hand.call("pids");
  assert.equal(pids.length, 2);
  assert.deepEqual(await alive(pids), pids);
  const other = await Client.open(session.servers.web.url);
  assert.deepEqual(await other.call("echo", { x: 1 }), { x: 1 });
  assert.equal(web.seen.open.size, 1);

  const listed = await leash.sessions({ label: { job: "1" } });
  assert.deepEqual(listed.map(({ id }) => id), [session.id]);
  const status = await session.status();
  assert.equal(status.state, "live");
  const kinds = status.servers.flatMap(({ holdings }) => holdings.map(({ kind }) => kind));
  assert.deepEqual(kinds.sort(), ["tree", "upstream"]);

  const receipt = await session.end();
  assert.deepEqual(await alive(pids), []);
  assert.deepEqual([web.seen.opened, web.seen.deleted, web.seen.open.size], [1, 1, 0]);
  assert.equal(receipt.session, session.id);
  assert.ok(allGone(receipt), JSON.stringify(receipt));
  assert.deepEqual(receipt.holdings.map(({ kind }) => kind).sort(), ["tree", "upstream"]);
  assert.deepEqual(await session.end(), receipt);
  assert.deepEqual(await (await leash.attach(session.id)).end(), receipt);
  assert.deepEqual(await leash.sessions({ label: { job: "1" } }), []);
  await assert.rejects(hand.call("pids"), { code: 404 });
  web.close();
});

test("a scope that is left ends its session", async () => {
  let pids;
  const failing = leash.withSession({ mcpServers: { hand: byHand("--helper") } }, async (session) => {
    pids = await (await Client.open(session.servers.hand.url)).call("pids");
    throw new Error("the job failed");
  });
  await assert.rejects(failing, { message: "the job failed" });
  assert.deepEqual(await alive(pids), []);

  const session = await leash.session({ mcpServers: { hand: byHand() } });
  pids = await (await Client.open(session.servers.hand.url)).call("pids");
  // What `await using` does.
  await session[Symbol.asyncDispose]();
  assert.deepEqual(await alive(pids), []);
});

test("a server has the environment and the directory of the caller, unless told otherwise", async () => {
  // A daemon of another run may have its own value of the variable.
  const name = `MCP_LEASH_TEST_${process.pid}`;
  process.env[name] = "wörld ${HOME}";
  const session = await leash.session({
    mcpServers: { hand: byHand(), other: { ...byHand(), env: { [name]: "mine" }, cwd: "/" } },
  });
  const hand = await Client.open(session.servers.hand.url);
  const other = await Client.open(session.servers.other.url);
  const ask = (client) => Promise.all([client.call("env", { name }), client.call("cwd")]);
  assert.deepEqual(await ask(hand), ["wörld ${HOME}", process.cwd()]);
  assert.deepEqual(await ask(other), ["mine", "/"]);
  await session.end();

  const bare = await leash.session({ mcpServers: { hand: byHand() }, inheritEnv: false });
  assert.equal(await (await Client.open(bare.servers.hand.url)).call("env", { name }), null);
  await bare.end();
});

test("a session is made whole or not at all", async () => {
  const ids = async () => (await leash.sessions()).map(({ id }) => id);
  const before = await ids();
  const mcpServers = { hand: byHand(), bad: { command: "/does/not/exist" } };
  await assert.rejects(leash.session({ mcpServers }), (error) => {
    assert.ok(code("server-failed")(error), String(error));
    assert.equal(error.status, 502);
    assert.equal(error.problem.server, "bad");
    return true;
  });
  assert.deepEqual(await ids(), before);
  await assert.rejects(leash.session({ mcpServers: { x: { command: 1 } } }), code("invalid-request"));
  await assert.rejects(leash.session({}), code("invalid-argument"));
});

test("a lease ends a session unless it is renewed", async () => {
  const session = await leash.session({ mcpServers: { hand: byHand() }, ttl: "1h", owner: "none" });
  assert.equal((await session.status()).ttlMs, 3_600_000);
  const events = await session.events();
  const renewed = await session.renew(100);
  assert.equal(renewed.ttlMs, 100);
  const seen = [];
  for await (const event of events) {
    seen.push(event.type);
    if (event.type === "ended") {
      assert.ok(allGone(event.receipt));
      break;
    }
  }
  assert.deepEqual(seen, ["ending", "ended"]);
  await assert.rejects(session.renew("1h"), code("ended"));
  assert.ok(allGone(await session.end()));

  const without = await leash.session({ mcpServers: { hand: byHand() } });
  await assert.rejects(without.renew(), code("no-lease"));
  await without.end();
});

test("pending calls can be aborted without ending the session", async () => {
  const session = await leash.session({ mcpServers: { hand: byHand() } });
  const client = await Client.open(session.servers.hand.url);
  const call = client.call("hang");
  call.catch(() => {});
  await until("the call", async () => (await session.status()).servers[0].inFlight > 0);
  assert.equal(await session.abort(), 1);
  await assert.rejects(call, { code: -32000 });
  assert.equal((await client.call("pids")).length, 1);
  await session.end();
});

test("events of every session can be listened to", async () => {
  const events = await leash.events();
  const session = await leash.session({ mcpServers: { hand: byHand() } });
  await session.end({ wait: false });
  const seen = [];
  for await (const event of events) {
    if (event.session === session.id) {
      seen.push(event.type);
      if (event.type === "ended") {
        break;
      }
    }
  }
  assert.deepEqual(seen, ["started", "ending", "ended"]);
});

test("a session can be owned by the connection", async () => {
  const session = await leash.session({ mcpServers: { hand: byHand() }, owner: { connection: true } });
  assert.deepEqual(session.owner, { kind: "connection" });
  const pids = await (await Client.open(session.servers.hand.url)).call("pids");
  assert.ok(allGone(await session.end()));
  assert.deepEqual(await alive(pids), []);
});

test("a session whose caller aborted is ended", async () => {
  const name = `abandoned-${process.pid}`;
  const events = await leash.events();
  const abort = new AbortController();
  const creating = leash.session({ mcpServers: { hand: byHand() }, name, signal: abort.signal });
  abort.abort();
  await assert.rejects(creating, { name: "AbortError" });
  for await (const event of events) {
    if (event.type === "ended" && event.receipt.name === name) {
      break;
    }
  }
  assert.deepEqual((await leash.sessions()).filter((session) => session.name === name), []);
});

// The ways in which a worker can exit without ending its session; the test does the `kill`.
for (const [way, owner] of [["exit", undefined], ["kill", undefined], ["kill", { connection: true }]]) {
  test(`a worker that leaves by ${way} leaves nothing, owner ${JSON.stringify(owner ?? "process")}`, async () => {
    const web = await upstream();
    const words = [fileURLToPath(new URL("leaver.mjs", import.meta.url)), way, web.url, JSON.stringify(owner ?? null)];
    const worker = spawn(process.execPath, words, { stdio: ["ignore", "pipe", "inherit"] });
    const gone = once(worker, "exit");
    const [line] = await once(createInterface({ input: worker.stdout }), "line");
    const { id, pids } = JSON.parse(line);
    assert.equal(pids.length, 2);
    assert.equal(web.seen.opened, 1);
    const events = await leash.events({ session: id });
    if (way === "kill") {
      worker.kill("SIGKILL");
    }
    await gone;
    const status = (await leash.sessions()).find((session) => session.id === id);
    if (status !== undefined) {
      for await (const event of events) {
        if (event.type === "ended") {
          break;
        }
      }
    }
    events.close();
    assert.deepEqual(await alive(pids), []);
    assert.deepEqual([web.seen.deleted, web.seen.open.size], [1, 0]);
    web.close();
  });
}

test("a remote daemon needs a token, and the connection is the owner", async (context) => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), "mcp-leash-"));
  context.after(() => fs.rmSync(dir, { recursive: true, force: true }));
  const words = ["serve", "--on-demand", "--control", path.join(dir, "control.sock"), "--control-listen", "127.0.0.1:0"];
  const daemon = spawn(process.env.LEASH_BIN ?? "leash", [...words, "--control-token-env", "TOKEN"], {
    env: { ...process.env, TOKEN: "of-the-test" },
    stdio: ["ignore", "ignore", "pipe"],
  });
  const gone = once(daemon, "exit");
  let url;
  for await (const line of createInterface({ input: daemon.stderr })) {
    [, url] = /control API on (http:\S+)/.exec(line) ?? [];
    if (url !== undefined) {
      break;
    }
  }
  await assert.rejects(Leash.connect({ url, token: "of-another" }), { status: 401 });
  const elsewhere = await Leash.connect({ url, token: "of-the-test" });
  const session = await elsewhere.session({ mcpServers: { hand: byHand() } });
  assert.deepEqual(session.owner, { kind: "connection" });
  const pids = await (await Client.open(session.servers.hand.url)).call("pids");
  assert.deepEqual(await alive(pids), pids);
  await elsewhere.close();
  assert.deepEqual(await alive(pids), []);
  daemon.kill("SIGTERM");
  assert.deepEqual(await gone, [0, null]);
});

test("a session can be created while the daemon stops", async () => {
  const slow = { ...byHand("--helper"), leash: { grace: "500ms" } };
  const session = await leash.session({ mcpServers: { slow } });
  const pids = await (await Client.open(session.servers.slow.url)).call("pids");
  const { pid } = await leash.version();
  process.kill(pid, "SIGTERM");
  const next = await leash.session({ mcpServers: { hand: byHand() } });
  assert.notEqual((await leash.version()).pid, pid);
  assert.equal((await (await Client.open(next.servers.hand.url)).call("pids")).length, 1);
  assert.ok(allGone(await next.end()));
  // The next daemon has the receipt.
  const receipt = await session.end();
  assert.deepEqual([receipt.reason, allGone(receipt), await alive(pids)], [{ kind: "shutdown" }, true, []]);
});

// This affects all sessions, because they lose their daemon.
test("a daemon that is killed leaves nothing, and the next one is used", async () => {
  const web = await upstream();
  const session = await leash.session({ mcpServers: { hand: byHand("--helper"), web: { url: web.url } } });
  const pids = await (await Client.open(session.servers.hand.url)).call("pids");
  await Client.open(session.servers.web.url);
  assert.deepEqual([(await alive(pids)).length, web.seen.open.size], [2, 1]);
  const { pid } = await leash.version();
  process.kill(pid, "SIGKILL");
  await assert.rejects(session.end(), code("session-lost"));
  assert.deepEqual(await alive(pids), []);
  assert.notEqual((await leash.version()).pid, pid);
  await until("the DELETE", () => web.seen.open.size === 0);
  assert.equal(web.seen.deleted, 1);
  await leash.withSession({ mcpServers: { hand: byHand() } }, async ({ servers }) => Client.open(servers.hand.url));
  web.close();
});
