// Calls while daemons stop and start, with scripted ones: a real one cannot be made to stop at the right moment.

import assert from "node:assert/strict";
import { once } from "node:events";
import fs from "node:fs";
import { createServer } from "node:http";
import os from "node:os";
import path from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";

import { Leash, LeashError } from "mcp-leash";

import { nativeBinary, packagedBinary } from "../src/binary.js";
import { runtimeDir } from "../src/daemon.js";
import { Splitter } from "../src/events.js";

const standIn = fileURLToPath(new URL("stand-in.mjs", import.meta.url));
const code = (wanted) => (error) => error instanceof LeashError && error.code === wanted;

/** A temporary directory, removed at the end. */
function scratch(context) {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), "mcp-leash-"));
  context.after(() => fs.rmSync(dir, { recursive: true, force: true }));
  return dir;
}

/** A daemon that answers `script[method path]` one after another, the last for ever; a function answers by itself. */
async function daemon(socket, script, pid = 1) {
  const seen = [];
  const server = createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) {
      parts.push(part);
    }
    const name = `${request.method} ${request.url}`;
    const text = Buffer.concat(parts).toString();
    seen.push([name, text === "" ? undefined : JSON.parse(text)]);
    const answers = script[name] ?? [[200, { version: "1", pid, api: 1 }]];
    const answer = answers.length > 1 ? answers.shift() : answers[0];
    if (typeof answer === "function") {
      answer(request, response);
    } else {
      response.writeHead(answer[0], { "content-type": "application/json" }).end(JSON.stringify(answer[1]));
    }
  });
  server.listen(socket);
  await once(server, "listening");
  const close = () => new Promise((resolve) => (server.close(resolve), server.closeAllConnections?.()));
  return { seen, close, count: (name) => seen.filter(([found]) => found === name).length };
}

const problem = (name, status, more) => [status, { type: `urn:leash:problem:${name}`, title: name, status, ...more }];
const made = (id) => [201, { id, state: "live", owner: { kind: "pid", pid: 1 }, labels: {}, startedAtMs: 1, servers: [SERVER] }];
const SERVER = { name: "a", kind: "http", url: "http://127.0.0.1:1/s/x/a/mcp", command: "/leash", args: ["attach", "j/a"] };
const mcpServers = { a: { url: "http://127.0.0.1:1/mcp" } };

test("the program is LEASH_BIN, else that of the package, else on the PATH", (context) => {
  const before = process.env.LEASH_BIN;
  context.after(() => (before === undefined ? delete process.env.LEASH_BIN : (process.env.LEASH_BIN = before)));
  process.env.LEASH_BIN = "/opt/leash";
  assert.equal(nativeBinary(), "/opt/leash");
  process.env.LEASH_BIN = "";
  // The source tree has no package for the platform.
  assert.equal(packagedBinary(), undefined);
  assert.equal(nativeBinary(), "leash");
});

test("events are found wherever the text is cut", () => {
  const text = ': hello\nevent: started\r\ndata: {"a":\r\ndata: 1}\n\nevent: x\n\ndata:{}\n\n';
  for (let size = 1; size <= text.length; size += 1) {
    const splitter = new Splitter();
    const found = [];
    for (let at = 0; at < text.length; at += size) {
      found.push(...splitter.push(text.slice(at, at + size)));
    }
    assert.deepEqual(found, [{ type: "started", data: '{"a":\n1}' }, { type: "message", data: "{}" }]);
  }
});

test("a session is created at the next daemon when this one stops", async (context) => {
  const socket = path.join(scratch(context), "control.sock");
  const draining = problem("draining", 503);
  const there = await daemon(socket, { "POST /v1/sessions": [draining, draining, made("j")] });
  const leash = await Leash.connect({ socket, bin: standIn });
  const session = await leash.session({ mcpServers });
  assert.equal(session.id, "j");
  const posts = there.seen.filter(([name]) => name === "POST /v1/sessions");
  assert.deepEqual(posts.map(([, body]) => body.owner.pid), [process.pid, process.pid, process.pid]);
  assert.deepEqual(session.stdioServers, { a: { type: "stdio", command: "/leash", args: ["attach", "j/a"] } });
  assert.deepEqual(session.mcpServers, { a: { type: "http", url: SERVER.url } });
  await there.close();
});

test("a creation that broke is repeated only when its daemon is gone", async (context) => {
  const socket = path.join(scratch(context), "control.sock");
  const cut = (request) => request.socket.destroy();
  const there = await daemon(socket, { "POST /v1/sessions": [cut] });
  const leash = await Leash.connect({ socket, start: false });
  await assert.rejects(leash.session({ mcpServers }), code("connection-lost"));
  assert.equal(there.count("POST /v1/sessions"), 1);
  await there.close();

  const version = [[200, { version: "1", pid: 3, api: 1 }], [200, { version: "1", pid: 4, api: 1 }]];
  const next = await daemon(socket, { "GET /v1/version": version, "POST /v1/sessions": [cut, made("k")] });
  const other = await Leash.connect({ socket, start: false });
  assert.equal((await other.session({ mcpServers })).id, "k");
  assert.equal(next.count("POST /v1/sessions"), 2);
  await next.close();
});

test("a broken end is repeated, and an unknown session is lost", async (context) => {
  const socket = path.join(scratch(context), "control.sock");
  const receipt = { session: "j", holdings: [] };
  const script = {
    "POST /v1/sessions": [made("j"), made("k")],
    "DELETE /v1/sessions/j": [(request) => request.socket.destroy(), [200, receipt]],
    "DELETE /v1/sessions/k": [problem("no-such-session", 404)],
  };
  const there = await daemon(socket, script);
  const leash = await Leash.connect({ socket, bin: "/does/not/exist", start: false });
  const [first, second] = [await leash.session({ mcpServers }), await leash.session({ mcpServers })];
  assert.deepEqual(await first.end(), receipt);
  assert.deepEqual(await first.end(), receipt);
  assert.equal(there.count("DELETE /v1/sessions/j"), 2);
  await assert.rejects(second.end(), code("session-lost"));
  // No session is left to end.
  const asked = there.count("DELETE /v1/sessions/k");
  await leash.close();
  assert.equal(there.count("DELETE /v1/sessions/k"), asked);
  await there.close();
});

test("every mistake of a request is reported", async (context) => {
  const socket = path.join(scratch(context), "control.sock");
  const errors = [
    { pointer: "/ttl", what: "not a duration", hint: "write 30s" },
    { pointer: "/mcpServers/a", what: "has neither `command` nor `url`" },
  ];
  const answer = problem("invalid-request", 400, { detail: "2 mistakes", errors, hint: "see the reference" });
  const there = await daemon(socket, { "POST /v1/sessions": [answer, [500, "what?"]] });
  const leash = await Leash.connect({ socket, start: false });
  await assert.rejects(leash.session({ mcpServers }), (error) => {
    const text = "invalid-request: 2 mistakes\n  /ttl: not a duration (write 30s)\n  /mcpServers/a: has neither `command` nor `url`";
    assert.equal(error.message, `${text}\nhint: see the reference`);
    assert.deepEqual([error.code, error.status, error.problem.errors], ["invalid-request", 400, errors]);
    return true;
  });
  await assert.rejects(leash.session({ mcpServers }), code("invalid-answer"));
  await there.close();
});

test("without a daemon one is started, once for all callers", async (context) => {
  const dir = scratch(context);
  process.env.LEASH_RUNTIME_DIR = dir;
  context.after(() => delete process.env.LEASH_RUNTIME_DIR);
  const leash = await Leash.connect({ bin: standIn });
  const all = await Promise.all([leash.sessions(), leash.sessions(), Leash.connect({ bin: standIn })]);
  assert.deepEqual(all.slice(0, 2), [[], []]);
  const started = fs.readFileSync(path.join(dir, "started"), "utf8");
  assert.equal(started, `serve --on-demand --starter ${process.pid}\n`);
  const { pid } = await leash.version();
  process.kill(pid, "SIGKILL");
  // Its socket is left behind. The stand-in does not take it over; the real program does.
  fs.rmSync(path.join(dir, "control.sock"));
  assert.notEqual((await Leash.connect({ bin: standIn }).then((next) => next.version())).pid, pid);
});

test("the usual variable does not change the runtime directory", (context) => {
  const me = process.geteuid();
  const usual = runtimeDir({});
  assert.ok(["/run/leash", `/run/user/${me}/leash`, `/tmp/leash-${me}`].includes(usual), usual);
  for (const session of ["relative", `/run/user/${me}`, "/does/not/exist"]) {
    assert.equal(runtimeDir({ XDG_RUNTIME_DIR: session }), usual);
  }
  const custom = scratch(context);
  assert.equal(runtimeDir({ XDG_RUNTIME_DIR: custom }), path.join(custom, "leash"));
});

test("a daemon that can't start says why", async (context) => {
  const dir = scratch(context);
  process.env.LEASH_RUNTIME_DIR = dir;
  process.env.STAND_IN = "fail";
  context.after(() => {
    delete process.env.LEASH_RUNTIME_DIR;
    delete process.env.STAND_IN;
  });
  await assert.rejects(Leash.connect({ bin: standIn }), (error) => {
    assert.equal(error.code, "daemon-failed");
    assert.match(error.message, /exit code 125\nerror: it is broken$/);
    return true;
  });
  await assert.rejects(Leash.connect({ bin: "/does/not/exist" }), code("no-daemon"));
  await assert.rejects(Leash.connect({ bin: standIn, start: false }), code("no-daemon"));
  await assert.rejects(Leash.connect({ url: "http://127.0.0.1:1" }), code("invalid-argument"));
  await assert.rejects(Leash.connect({ url: "http://127.0.0.1:1", token: "t" }), code("no-daemon"));
});
