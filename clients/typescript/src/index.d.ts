// The classes below have `[Symbol.asyncDispose]`, which the libraries of TypeScript have from `esnext` on. Declared again, the two
// declarations are one.
declare global {
  interface SymbolConstructor {
    readonly asyncDispose: unique symbol;
  }
}

/** A server that the daemon starts. Any other key of a client's own configuration is passed on. */
export interface StdioServer {
  command: string;
  args?: string[];
  env?: Record<string, string>;
  cwd?: string;
  type?: "stdio";
  /** Options of leash: `grace`, `maxAge`, `contain`... */
  leash?: Record<string, unknown>;
  [key: string]: unknown;
}

/** A server that runs elsewhere. */
export interface HttpServer {
  url: string;
  headers?: Record<string, string>;
  type?: "http" | "streamable-http" | "streamableHttp" | "sse";
  leash?: Record<string, unknown>;
  [key: string]: unknown;
}

export type McpServers = Record<string, StdioServer | HttpServer>;

/** A text such as `"500ms"`, `"30s"`, `"10m"`, `"1h"`; or a number of milliseconds. */
export type Duration = string | number;

export interface ConnectOptions {
  /** The control socket. The default is `control.sock` in the runtime directory of `leash`. */
  socket?: string;
  /** A daemon that listens on TCP (`--control-listen`), with its token. None is started then. */
  url?: string | URL;
  token?: string;
  /** The program. The default is `LEASH_BIN`, or the one that was installed with this package, or `leash` on the PATH. */
  bin?: string;
  /** True to start a daemon if there is none. */
  start?: boolean;
  signal?: AbortSignal;
}

/** The owner of a session: a process; the connection of its creator; or none, until a caller ends it. */
export type Owner = { pid: number } | { connection: true } | "none";

export interface SessionOptions {
  mcpServers: McpServers;
  /** The default is this process or, if the daemon is reached by `url`, this connection. */
  owner?: Owner;
  /** True (the default): servers have the environment and the directory of this process. False: those of the daemon. */
  inheritEnv?: boolean;
  /** The session ends after this time unless the lease is renewed. */
  ttl?: Duration;
  /** The session ends after this time without a pending request. */
  idle?: Duration;
  /** The session ends at this age in any case. */
  maxAge?: Duration;
  /** What all trees of the session may use together: `{ memory: "4G", pids: 500, cpu: "200%" }`. */
  budget?: { memory?: string | number; pids?: number; cpu?: string | number };
  name?: string;
  labels?: Record<string, string>;
  /** If this is aborted, a session that exists already is ended. */
  signal?: AbortSignal;
}

export type Holding =
  | { kind: "tree"; run: string; pid?: number; containment?: string; processes: number; memoryBytes: number }
  | { kind: "upstream"; url: string; sessionId: string };

export interface SessionServer {
  name: string;
  kind: "stdio" | "http";
  /** For any SDK that speaks Streamable HTTP. It contains a secret that gives access to the server. */
  url: string;
  /** For hosts that only take a command: an absolute path, and `args` that go with it. */
  command: string;
  args: string[];
  holdings: Holding[];
  /** The clients that have a session there now; absent if there is none. */
  clients?: Client[];
  /** Requests of its clients. */
  calls?: number;
  inFlight: number;
}

/** A client of a server. Its name and version are its own words, and prove nothing. */
export interface Client {
  name?: string;
  version?: string;
  pid?: number;
  address?: string;
}

export interface SessionStatus {
  id: string;
  name?: string;
  state: "starting" | "live" | "ending" | "ended";
  owner: { kind: "pid"; pid: number } | { kind: "connection" } | { kind: "none" };
  labels: Record<string, string>;
  startedAtMs: number;
  ttlMs?: number;
  leaseUntilMs?: number;
  idleMs?: number;
  maxAgeMs?: number;
  deadlineMs?: number;
  deadlineReason?: string;
  idleForMs: number;
  servers: SessionServer[];
  receipt?: Receipt;
}

export type ReceiptHolding =
  | {
      kind: "tree";
      fate: "gone" | "ended" | "left";
      how: "exited" | "eof" | "term" | "kill";
      members: number;
      memory_bytes: number;
      left?: { pid: number; name: string; why: string }[];
      [key: string]: unknown;
    }
  | {
      kind: "upstream";
      fate: "gone" | "left";
      how: "deleted" | "forgotten" | "closed" | "unsupported" | "denied" | "unreachable";
      url: string;
      id: string;
      tries: number;
      status?: number;
      why?: string;
      [key: string]: unknown;
    };

/** The receipt of a session, as in `leash history --json`. */
export interface Receipt {
  version: number;
  session: string;
  run: string;
  name: string;
  labels?: Record<string, string>;
  reason: { kind: string; [key: string]: unknown };
  client?: Client;
  holdings: ReceiptHolding[];
  ended_by: string;
  started_ms: number;
  ended_ms: number;
  took_ms: number;
  [key: string]: unknown;
}

export interface SessionEvent {
  type: "started" | "owner-lost" | "ending" | "ended" | "lost" | (string & {});
  /** In every event but `lost`, which says that the reader was too slow. */
  session?: string;
  atMs: number;
  why?: string;
  receipt?: Receipt;
  [key: string]: unknown;
}

/** The events since the stream was opened. It only keeps the process alive while a caller waits for the next one. */
export class EventStream implements AsyncIterable<SessionEvent> {
  private constructor();
  /** The next event; undefined after the last. */
  next(): Promise<SessionEvent | undefined>;
  close(): void;
  [Symbol.asyncIterator](): AsyncGenerator<SessionEvent, void, undefined>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** The servers of one job. `await using` ends it. */
export class Session {
  private constructor();
  readonly id: string;
  readonly name?: string;
  readonly labels: Record<string, string>;
  readonly owner: SessionStatus["owner"];
  readonly startedAtMs: number;
  readonly servers: Record<string, SessionServer>;
  /** The servers as a configuration for clients that speak Streamable HTTP. */
  readonly mcpServers: Record<string, { type: "http"; url: string }>;
  /** The servers as a configuration for hosts that only take commands. */
  readonly stdioServers: Record<string, { type: "stdio"; command: string; args: string[] }>;
  /** The current state of the session. */
  status(options?: { signal?: AbortSignal }): Promise<SessionStatus>;
  /** Returns when every process is gone and every upstream session deleted. A second call returns the same receipt. */
  end(options?: { force?: boolean; wait?: true; signal?: AbortSignal }): Promise<Receipt>;
  /** Begins to end it, without waiting. */
  end(options: { force?: boolean; wait: false; signal?: AbortSignal }): Promise<undefined>;
  /** Cancels every pending request, keeps the session, and returns their number. */
  abort(options?: { signal?: AbortSignal }): Promise<number>;
  /** Renews the lease, with another ttl if one is given. */
  renew(ttl?: Duration, options?: { signal?: AbortSignal }): Promise<SessionStatus>;
  events(options?: { signal?: AbortSignal }): Promise<EventStream>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A daemon that answers. `await using` ends the sessions that were created through it. */
export class Leash {
  private constructor();
  /** Finds the daemon, or starts one that ends itself when its last session and this process are gone. */
  static connect(options?: ConnectOptions): Promise<Leash>;
  /** Creates a session. Its servers run when it returns. If one cannot start, none does: `LeashError` with the code `server-failed`. */
  session(options: SessionOptions): Promise<Session>;
  /** The same for the duration of a function. */
  withSession<T>(options: SessionOptions, job: (session: Session) => T | Promise<T>): Promise<T>;
  sessions(options?: { all?: boolean; label?: Record<string, string>; signal?: AbortSignal }): Promise<SessionStatus[]>;
  /** An existing session. */
  attach(id: string, options?: { signal?: AbortSignal }): Promise<Session>;
  /** Ends every session of the daemon, including those of other callers. */
  endAll(options?: { force?: boolean; signal?: AbortSignal }): Promise<Receipt[]>;
  events(options?: { session?: string; signal?: AbortSignal }): Promise<EventStream>;
  version(options?: { signal?: AbortSignal }): Promise<{ version: string; pid: number; api: number }>;
  /** Ends the sessions that were created through this object. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** True if everything in a receipt is proved to be gone. */
export function allGone(receipt: Receipt): boolean;

export interface Problem {
  type?: string;
  title?: string;
  status?: number;
  detail?: string;
  hint?: string;
  [member: string]: unknown;
}

/**
 * A call that failed. `code` is the name of the daemon's problem (`server-failed`, `no-such-session`, `invalid-request`, `no-lease`...) or one
 * of this module's own: `no-daemon`, `daemon-failed`, `connection-lost`, `session-lost`, `invalid-answer`, `invalid-argument`.
 */
export class LeashError extends Error {
  readonly code: string;
  readonly status?: number;
  readonly problem?: Problem;
}
