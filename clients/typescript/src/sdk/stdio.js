// A transport for a stdio server on the leash.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { PassThrough } from "node:stream";

import { nativeBinary } from "../binary.js";
import { LeashError } from "../error.js";
import { Lines } from "./lines.js";
import { finish, noProgram, runWords, serverEnvironment, sessionId } from "./program.js";

// The default of the official SDKs.
const LONGEST = 10 * 1024 * 1024;

// The descriptor on which leash reports.
const REPORT = 3;

/** The same constructor as `StdioClientTransport` of the official SDKs. The server and all that it starts end with the transport. */
export class LeashedStdioClientTransport {
  onclose;
  onerror;
  onmessage;
  // The client of SDK 2.x makes a second transport from these to find out which protocol a server speaks, and disposes of it.
  _serverParams;
  #env;
  #session = sessionId();
  #stderr = null;
  #lines;
  #child;
  #pid = null;
  #receipt;
  #over;

  constructor(server) {
    this._serverParams = server;
    this.#lines = new Lines(server.maxBufferSize ?? LONGEST);
    if (server.stderr === "pipe" || server.stderr === "overlapped") {
      this.#stderr = new PassThrough();
    }
  }

  /** The stderr of the server, if it is a pipe. */
  get stderr() {
    return this.#stderr ?? this.#child?.stderr ?? null;
  }

  /** The pid of the server; `null` before it has started and after its end. */
  get pid() {
    return this.#pid;
  }

  /** The id of the session in `leash ps` and `leash history`. */
  get session() {
    return this.#session;
  }

  /** The receipt: there when `close()` has returned or `onclose` was called. */
  get receipt() {
    return this.#receipt;
  }

  /** Starts the server. Rejects with the reason if it cannot be started. */
  async start() {
    if (this.#over !== undefined) {
      throw new Error("LeashedStdioClientTransport already started! If using Client class, note that connect() calls start() automatically.");
    }
    const { command, args, env, cwd, stderr, leash: options } = this._serverParams;
    this.#env = serverEnvironment(env);
    const words = runWords({ session: this.#session, options, server: { command, args, cwd }, report: REPORT });
    const child = spawn(nativeBinary(), words, { env: this.#env, stdio: ["pipe", "pipe", stderr ?? "inherit", "pipe"] });
    this.#child = child;
    let refuse;
    const started = new Promise((resolve, reject) => {
      refuse = reject;
      this.#listen(child, resolve, reject);
    });
    this.#over = this.#end(child, refuse);
    try {
      await started;
    } catch (error) {
      await this.#over;
      throw error;
    }
  }

  #listen(child, started, failed) {
    child.stdin.on("error", (error) => this.onerror?.(error));
    child.stdout.on("data", (chunk) => this.#read(chunk));
    child.stdout.on("error", (error) => this.onerror?.(error));
    if (this.#stderr !== null) {
      child.stderr.pipe(this.#stderr);
    }
    const reports = new Lines(LONGEST);
    child.stdio[REPORT].on("data", (chunk) => {
      for (const line of reports.push(chunk)) {
        const report = JSON.parse(line);
        this.#pid = report.started?.pid ?? null;
        this.#receipt = report.ended ?? this.#receipt;
        if (report.failed !== undefined) {
          const { message, hint, why } = report.failed;
          failed(new LeashError("server-failed", `${message}\nhint: ${hint}`, { problem: why }));
        } else {
          started();
        }
      }
    });
  }

  #read(chunk) {
    let lines;
    try {
      lines = this.#lines.push(chunk);
    } catch (error) {
      this.onerror?.(error);
      this.close().catch(() => {});
      return;
    }
    for (const line of lines.filter((line) => line !== "")) {
      try {
        this.onmessage?.(message(line));
      } catch (error) {
        this.onerror?.(error);
      }
    }
  }

  /** Follows leash to its end, whoever caused it. */
  async #end(child, refuse) {
    try {
      // Not `close`: a process that was spared may hold the pipes.
      const [code, signal] = await once(child, "exit");
      await drained(child.stdio[REPORT]);
      if (this.#receipt === undefined) {
        [this.#receipt] = await finish(this.#session, this.#env);
      }
      refuse(new LeashError("server-failed", `leash ended before the server started (${signal ?? `exit code ${code}`})`));
    } catch (error) {
      refuse(noProgram(error));
    }
    await drained(child.stdout);
    for (const stream of child.stdio) {
      stream?.destroy();
    }
    this.#pid = null;
    this.#lines.clear();
    this.onclose?.();
  }

  /** Ends the server. Returns when nothing is left of it; `receipt` is there then. */
  async close() {
    this.#child?.stdin?.end();
    await this.#over;
  }

  async _dispose() {
    this.#child?.kill("SIGTERM");
    await this.close();
  }

  /** Sends a message. Resolves when the pipe has taken it. */
  send(message) {
    const stdin = this.#child?.stdin;
    if (stdin === undefined || !stdin.writable) {
      return Promise.reject(new Error("Not connected"));
    }
    if (stdin.write(`${JSON.stringify(message)}\n`)) {
      return Promise.resolve();
    }
    return Promise.race([once(stdin, "drain"), this.#over]).then(() => {});
  }
}

/** Reads what is left in a pipe whose writers are gone. A writer that was spared may hold it open, so this does not wait long. */
function drained(stream) {
  if (stream.readableEnded || stream.destroyed) {
    return undefined;
  }
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, 100);
    stream.once("close", () => (clearTimeout(timer), resolve()));
  });
}

function message(line) {
  const parsed = JSON.parse(line);
  if (parsed?.jsonrpc !== "2.0" && !Array.isArray(parsed)) {
    throw new Error("the server wrote a line that is not JSON-RPC");
  }
  return parsed;
}
