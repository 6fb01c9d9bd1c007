// One session: the servers of one job.

import { pause } from "./daemon.js";
import { LeashError } from "./error.js";
import { duration, incoming, query } from "./servers.js";

// A daemon that is told to stop writes a receipt as soon as all processes are gone.
const RECEIPT_MS = 2_000;
const RECEIPT_STEP_MS = 50;

/**
 * A session. Ending it ends every process and every upstream session of its servers, and returns when they are gone.
 */
export class Session {
  #leash;
  #receipt;
  #stream;

  /**
   * @param {import("./leash.js").Link} leash
   * @param {any} document as the API has it
   * @param {import("./events.js").EventStream} [stream] the connection that owns the session
   */
  constructor(leash, document, stream) {
    this.#leash = leash;
    this.#stream = stream;
    this.id = document.id;
    this.name = document.name;
    this.labels = document.labels ?? {};
    this.owner = document.owner;
    this.startedAtMs = document.startedAtMs;
    this.servers = incoming(document.servers);
  }

  get #path() {
    return `/v1/sessions/${encodeURIComponent(this.id)}`;
  }

  /** The servers as a configuration for clients that speak Streamable HTTP. */
  get mcpServers() {
    return this.#each(({ url }) => ({ type: "http", url }));
  }

  /** The servers as a configuration for hosts that only take commands. */
  get stdioServers() {
    return this.#each(({ command, args }) => ({ type: "stdio", command, args }));
  }

  #each(shape) {
    return Object.fromEntries(Object.entries(this.servers).map(([name, server]) => [name, shape(server)]));
  }

  /** The current state of the session: state, deadline, holdings with their processes and memory. */
  status({ signal } = {}) {
    return this.#leash.call({ method: "GET", path: this.#path, signal });
  }

  /**
   * Ends the session. When this returns, every process is gone and every upstream session is deleted, or the receipt says what is left.
   * A second call returns the same receipt. With `force` there is no grace; with `wait: false` it only begins, and there is no receipt.
   */
  async end({ force = false, wait = true, signal } = {}) {
    if (this.#receipt !== undefined) {
      return this.#receipt;
    }
    const asked = [...(force ? [["force", "true"]] : []), ...(wait ? [] : [["wait", "false"]])];
    const path = this.#path + query(asked);
    const answer = await this.#delete(path, signal);
    // Without `wait` as well: the daemon ends it now, so nothing has to be remembered here.
    this.#leash.ended(this);
    this.#stream?.close();
    if (!wait) {
      return undefined;
    }
    this.#receipt = answer;
    return answer;
  }

  // The daemon that created it may be gone. A daemon that was told to stop lets another one take its place, and ends
  // its sessions meanwhile: the other one finds the receipt when it is written. A killed daemon leaves the processes to
  // its keepers, and the upstream sessions to the next daemon, so one is started.
  async #delete(path, signal) {
    let until;
    for (;;) {
      try {
        return await this.#leash.call({ method: "DELETE", path, signal }, { start: true });
      } catch (error) {
        if (error.code !== "no-such-session") {
          throw error;
        }
        if (until === undefined) {
          await this.#leash.finish(this.id);
          until = Date.now() + RECEIPT_MS;
        } else if (Date.now() > until) {
          throw this.#lost(error);
        }
        await pause(RECEIPT_STEP_MS);
      }
    }
  }

  #lost(cause) {
    this.#leash.ended(this);
    this.#stream?.close();
    const why = "the daemon that held it was killed, and what it held was ended without it";
    const hint = `\`leash history ${this.id}\` has the receipts`;
    return new LeashError("session-lost", `session \`${this.id}\` is not known any more: ${why}\nhint: ${hint}`, { cause });
  }

  /** Cancels every pending request, keeps the session, and returns their number. */
  async abort({ signal } = {}) {
    const { aborted } = await this.#leash.call({ method: "POST", path: `${this.#path}/abort`, signal }, { repeat: true });
    return aborted;
  }

  /** Renews the lease, with another ttl if one is given. */
  renew(ttl, { signal } = {}) {
    return this.#leash.call({ method: "PUT", path: `${this.#path}/lease`, body: { ttl: duration(ttl) }, signal });
  }

  /** The events of this session from now on. */
  events({ signal } = {}) {
    return this.#leash.listen(this.id, signal);
  }

  async [Symbol.asyncDispose]() {
    await this.end();
  }
}
