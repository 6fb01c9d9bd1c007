// The process `leash guard`, which ends HTTP sessions when this process is gone.

import { spawn } from "node:child_process";
import { once } from "node:events";

import { nativeBinary } from "../binary.js";
import { LeashError } from "../error.js";
import { Lines } from "./lines.js";
import { finish, noProgram, sessionId } from "./program.js";

const LONGEST = 1024 * 1024;

/** A guard of one transport. It does not keep this process alive: when this process exits, the guard ends the sessions. */
export class Guard {
  session = sessionId();
  receipt;
  #child;
  #over;
  #told = new Map();
  #waiting = new Map();

  /** Starts the guard. `onlost` is called if it ends before it was told to. */
  async start(name, onlost) {
    const words = ["guard", `--session=${this.session}`, `--name=${name}`];
    // A process group of its own: Ctrl-C must not end the guard before this process.
    const child = spawn(nativeBinary(), words, { cwd: "/", detached: true, stdio: ["pipe", "pipe", "pipe"] });
    this.#child = child;
    let said = "";
    child.stderr.setEncoding("utf8").on("data", (text) => (said = (said + text).slice(-4_000)));
    // A guard that was killed takes no more lines; its end is seen below.
    child.stdin.on("error", () => {});
    let refuse;
    const ready = new Promise((resolve, reject) => {
      refuse = reject;
      this.#listen(child.stdout, resolve);
    });
    this.#over = this.#end(child, (error) => refuse(error ?? new LeashError("guard-failed", said.trim() || "leash guard ended")));
    await ready;
    this.#keepAlive(false);
    this.#over.then(onlost);
  }

  #listen(stdout, ready) {
    const lines = new Lines(LONGEST);
    stdout.on("data", (chunk) => {
      for (const line of lines.push(chunk)) {
        const said = JSON.parse(line);
        if (said.holdings !== undefined) {
          this.receipt = said;
        } else if (said.held !== undefined) {
          this.#waiting.get(said.held)?.();
        } else {
          ready();
        }
      }
    });
  }

  async #end(child, refuse) {
    try {
      await once(child, "close");
      refuse();
    } catch (error) {
      refuse(noProgram(error));
      return;
    }
    // Its keeper ends the sessions of a guard that was killed.
    if (this.receipt === undefined && this.#told.size > 0) {
      [this.receipt] = await finish(this.session, process.env);
    }
  }

  /** Tells the guard of a session, unless it knows the same already. When this returns, the ledger and the keeper know it. */
  async hold(opened) {
    const line = JSON.stringify({ open: opened });
    if (this.#told.get(opened.session) !== line) {
      this.#told.set(opened.session, line);
      const held = new Promise((resolve) => this.#waiting.set(opened.session, resolve));
      await this.#tell(line);
      // A guard that was killed answers nothing.
      await Promise.race([held, this.#over]);
    }
  }

  /** True if the guard was told of a session. */
  holds(session) {
    return this.#told.has(session);
  }

  /** Tells the guard that the server has accepted a DELETE. */
  async ended(session, status) {
    await this.#tell(JSON.stringify({ ended: { session, status } }));
  }

  #tell(line) {
    return new Promise((resolve) => this.#child.stdin.write(`${line}\n`, () => resolve()));
  }

  /** Ends the sessions that are open. `receipt` is there when this returns, if there was a session. */
  async end() {
    if (this.#child === undefined) {
      return;
    }
    this.#keepAlive(true);
    this.#child.stdin.end();
    await this.#over;
  }

  #keepAlive(is) {
    const word = is ? "ref" : "unref";
    for (const handle of [this.#child, ...this.#child.stdio]) {
      handle?.[word]?.();
    }
  }
}
