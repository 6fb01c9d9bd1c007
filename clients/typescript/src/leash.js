// The daemon, as a caller sees it.

import path from "node:path";

import { nativeBinary } from "./binary.js";
import { finish, pause, runtimeDir, start } from "./daemon.js";
import { LeashError } from "./error.js";
import { EventStream } from "./events.js";
import { duration, outgoing, query } from "./servers.js";
import { Session } from "./session.js";
import { document, isBroken, isNobody, read, send } from "./wire.js";

// A daemon that stops ends its sessions first, each with its grace.
const LEAVING_MS = 60_000;
const LEAVING_STEP_MS = 50;

// A connection that breaks this often has another reason than a daemon that stopped.
const TRIES = 4;

/** The link to the daemon: calls that survive its stop, and start one if there is none. */
export class Link {
  #place;
  #bin;
  #told;
  #mayStart;
  #starting;
  #pid;
  #sessions = new Set();

  constructor({ socket, url, token, bin, start: mayStart = true } = {}) {
    if (url !== undefined) {
      if (!token) {
        throw new LeashError("invalid-argument", "a daemon at a `url` wants a `token`");
      }
      this.#place = { url: new URL(url), token };
      this.#mayStart = false;
    } else {
      this.#told = socket === undefined ? undefined : path.resolve(socket);
      this.#place = { socketPath: this.#told ?? path.join(runtimeDir(), "control.sock") };
      this.#mayStart = mayStart;
    }
    const program = bin ?? nativeBinary();
    // The daemon is started in another directory.
    this.#bin = program.includes("/") ? path.resolve(program) : program;
  }

  /** The socket, unless the daemon is remote. */
  get control() {
    return this.#place.socketPath;
  }

  get isRemote() {
    return this.control === undefined;
  }

  /**
   * Sends a request and reads its answer. A request other than POST, or with `repeat`, is sent again if the connection breaks.
   *
   * @param {{method: string, path: string, body?: unknown, signal?: AbortSignal}} request
   */
  call(request, { start = false, repeat = request.method !== "POST" } = {}) {
    return this.#persist(async () => document(await send(this.#place, request)), { request, start, repeat });
  }

  /** The same for an answer that is a stream of events. */
  async stream(request, order) {
    const accept = "text/event-stream, application/problem+json";
    const open = async () => {
      const answer = await send(this.#place, { ...request, accept });
      if (answer.statusCode < 200 || answer.statusCode > 299) {
        throw LeashError.from(answer.statusCode, await read(answer));
      }
      return new EventStream(answer);
    };
    return this.#persist(open, { request, ...order });
  }

  listen(session, signal) {
    const path = `/v1/events${query(session === undefined ? [] : [["session", session]])}`;
    return this.stream({ method: "GET", path, signal }, { start: true, repeat: true });
  }

  async #persist(attempt, { request, start: mayStart, repeat }) {
    for (let tries = 1; ; tries += 1) {
      const daemon = this.#pid;
      try {
        return await attempt();
      } catch (error) {
        if (error instanceof LeashError || request.signal?.aborted) {
          throw error;
        }
        if (isNobody(error) && mayStart && this.#mayStart && tries < TRIES) {
          await this.#startDaemon();
        } else if (!(isBroken(error) && tries < TRIES && (repeat || (await this.#isAnother(daemon))))) {
          throw this.#explain(error);
        }
      }
    }
  }

  /** True if the daemon is another one than before: unfinished work of the old one ended with it, so it can be repeated. */
  async #isAnother(daemon) {
    const there = await this.#look();
    return there === undefined || there !== daemon;
  }

  async #look() {
    try {
      const version = await document(await send(this.#place, { method: "GET", path: "/v1/version" }));
      this.#pid = version.pid;
      return version.pid;
    } catch {
      return undefined;
    }
  }

  // Other callers meanwhile wait for the same start.
  #startDaemon() {
    const isThere = async () => (await this.#look()) !== undefined;
    this.#starting ??= start({ bin: this.#bin, control: this.#told, isThere }).finally(() => (this.#starting = undefined));
    return this.#starting;
  }

  #explain(cause) {
    const where = this.control ?? this.#place.url.origin;
    if (isNobody(cause)) {
      return new LeashError("no-daemon", `no leash listens at ${where}\nhint: start one with \`leash serve\``, { cause });
    }
    const why = isBroken(cause) ? "; it speaks to the user only who started it" : "";
    return new LeashError("connection-lost", `cannot speak to leash at ${where}: ${cause.message}${why}`, { cause });
  }

  async version({ start = true, signal } = {}) {
    const version = await this.call({ method: "GET", path: "/v1/version", signal }, { start });
    this.#pid = version.pid;
    if (version.api !== 1) {
      throw new LeashError("invalid-answer", `leash ${version.version} speaks version ${version.api} of its API, not 1`);
    }
    return version;
  }

  /** Creates a session, at another daemon if the current one is stopping. */
  async create(body) {
    const until = Date.now() + LEAVING_MS;
    for (;;) {
      try {
        const session = await this.#createOnce(body);
        this.#sessions.add(session);
        return session;
      } catch (error) {
        if (error.code !== "draining" || !this.#mayStart || Date.now() > until) {
          throw error;
        }
        await pause(LEAVING_STEP_MS);
      }
    }
  }

  async #createOnce(body) {
    const request = { method: "POST", path: "/v1/sessions", body };
    if (!body.owner?.connection) {
      return new Session(this, await this.call(request, { start: true }));
    }
    const stream = await this.stream(request, { start: true, repeat: false });
    const first = await stream.next();
    if (first?.type !== "session") {
      stream.close();
      throw new LeashError("connection-lost", "the connection that was to own the session broke");
    }
    const { type, ...session } = first;
    return new Session(this, session, stream);
  }

  ended(session) {
    this.#sessions.delete(session);
  }

  /** Waits until nothing is left of a session that no daemon knows. For a remote daemon, that cannot be seen from here. */
  async finish(id) {
    if (!this.isRemote) {
      await finish({ bin: this.#bin, id });
    }
  }

  /** Ends all sessions that were created here and not ended, concurrently; throws the first failure when all are done. */
  async endOwn() {
    const ends = await Promise.allSettled([...this.#sessions].map((session) => session.end()));
    const failed = ends.find(({ status }) => status === "rejected");
    if (failed !== undefined) {
      throw failed.reason;
    }
    return ends.map(({ value }) => value);
  }
}

/** A daemon that answers. */
export class Leash {
  #link;

  /** Use {@link Leash.connect}. */
  constructor(link) {
    this.#link = link;
  }

  /** Finds the daemon, or starts one. */
  static async connect(options = {}) {
    const link = new Link(options);
    await link.version({ signal: options.signal });
    return new Leash(link);
  }

  /**
   * Creates a session with its own servers, which run when this returns. If one cannot start, none does, and the error says which and why.
   */
  async session({ mcpServers, owner, inheritEnv = true, ttl, idle, maxAge, budget, name, labels, signal } = {}) {
    signal?.throwIfAborted();
    const body = {
      name,
      labels,
      mcpServers: outgoing(mcpServers, inheritEnv),
      owner: this.#owner(owner),
      ttl: duration(ttl),
      idle: duration(idle),
      maxAge: duration(maxAge),
      budget,
    };
    const creating = this.#link.create(body);
    return signal === undefined ? creating : unlessAborted(creating, signal);
  }

  // By default a session lives for the process that created it. A remote daemon cannot see that process, so the
  // connection is the owner.
  #owner(owner) {
    if (owner === undefined) {
      return this.#link.isRemote ? { connection: true } : { pid: process.pid };
    }
    return owner === "none" ? undefined : owner;
  }

  /** Creates a session for `job`, and ends it even if `job` fails: for JavaScript without `await using`. */
  async withSession(options, job) {
    const session = await this.session(options);
    try {
      return await job(session);
    } finally {
      await session.end();
    }
  }

  /** The living sessions; with `all` also those that ended recently. */
  async sessions({ all = false, label, signal } = {}) {
    const labels = Object.entries(label ?? {}).map(([key, value]) => ["label", `${key}=${value}`]);
    const path = `/v1/sessions${query([...(all ? [["all", "true"]] : []), ...labels])}`;
    const { sessions } = await this.#link.call({ method: "GET", path, signal }, { start: true });
    return sessions;
  }

  /** An existing session, by its id. */
  async attach(id, { signal } = {}) {
    const path = `/v1/sessions/${encodeURIComponent(id)}`;
    return new Session(this.#link, await this.#link.call({ method: "GET", path, signal }));
  }

  /** Ends every session of this daemon, including those of other callers. */
  async endAll({ force = false, signal } = {}) {
    const path = `/v1/sessions${force ? "?force=true" : ""}`;
    const { receipts } = await this.#link.call({ method: "DELETE", path, signal });
    return receipts;
  }

  /** The events from now on, of all sessions or of one. */
  events({ session, signal } = {}) {
    return this.#link.listen(session, signal);
  }

  /** The version of leash. */
  version({ signal } = {}) {
    return this.#link.version({ signal });
  }

  /** Ends the sessions that were made through this object and not ended. The daemon ends itself when no process needs it. */
  async close() {
    await this.#link.endOwn();
  }

  async [Symbol.asyncDispose]() {
    await this.close();
  }
}

/** True if everything in a receipt is proved to be gone. */
export function allGone(receipt) {
  return receipt.holdings.every((holding) => holding.fate === "gone");
}

// The daemon may have created the session by the time its caller aborts: it is ended then.
function unlessAborted(creating, signal) {
  return new Promise((resolve, reject) => {
    const abort = () => {
      reject(signal.reason);
      creating.then((session) => session.end({ force: true })).catch(() => {});
    };
    signal.addEventListener("abort", abort, { once: true });
    creating.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}
