/** A server that the daemon starts. Any other key of a client's own configuration is passed on. */
export interface StdioServer {
  command: string;
  args?: string[];
  env?: Record<string, string>;
  cwd?: string;
  type?: "stdio";
  /** How leash treats it: `grace`, `maxAge`, `contain`... */
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
  /** The control socket. Otherwise `control.sock` in the runtime directory, as `leash` finds it. */
  socket?: string;
  /** A daemon that listens on TCP (`--control-listen`), with its token. None is started then. */
  url?: string | URL;
  token?: string;
  /** The program. Otherwise `LEASH_BIN`, otherwise `leash` on the PATH. */
  bin?: string;
  /** Whether to start a daemon where there is none. */
  start?: boolean;
  signal?: AbortSignal;
}

/** What a session lives for: a process; the connection of the one who made it; or nothing, until somebody ends it. */
export type Owner = { pid: number } | { connection: true } | "none";

export interface SessionOptions {
  mcpServers: McpServers;
  /** Otherwise this process; or, where the daemon is reached by `url`, this connection. */
  owner?: Owner;
  /** Whether servers have the environment and the directory of this process. Otherwise they have the daemon's. True unless told. */
  inheritEnv?: boolean;
  /** Ends unless it is renewed. */
  ttl?: Duration;
  /** Ends when nothing was in flight for so long. */
  idle?: Duration;
  /** Ends at this age, whatever happens. */
  maxAge?: Duration;
  name?: string;
  labels?: Record<string, string>;
  /** A session that is there when this is aborted is ended. */
  signal?: AbortSignal;
}

export type Holding =
  | { kind: "tree"; run: string; pid?: number; containment?: string; processes: number; memoryBytes: number }
  | { kind: "upstream"; url: string; sessionId: string };

export interface SessionServer {
  name: string;
  kind: "stdio" | "http";
  /** For any SDK that speaks Streamable HTTP. It holds a secret: whoever has it can use the server. */
  url: string;
  /** For hosts that only take a command: an absolute path, and `args` that go with it. */
  command: string;
  args: string[];
  holdings: Holding[];
  inFlight: number;
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

/** What became of a session, as in `leash history --json`. */
export interface Receipt {
  version: number;
  session: string;
  run: string;
  name: string;
  labels?: Record<string, string>;
  reason: { kind: string; [key: string]: unknown };
  holdings: ReceiptHolding[];
  ended_by: string;
  started_ms: number;
  ended_ms: number;
  took_ms: number;
  [key: string]: unknown;
}

export interface SessionEvent {
  type: "started" | "owner-lost" | "ending" | "ended" | "lost" | (string & {});
  /** Of every event but `lost`, which says that the reader was too slow. */
  session?: string;
  atMs: number;
  why?: string;
  receipt?: Receipt;
  [key: string]: unknown;
}

/** Events from the moment it is there. It does not keep the process alive unless somebody waits for the next one. */
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
  /** The servers as a configuration for whoever speaks Streamable HTTP. */
  readonly mcpServers: Record<string, { type: "http"; url: string }>;
  /** The servers as a configuration for hosts that only take commands. */
  readonly stdioServers: Record<string, { type: "stdio"; command: string; args: string[] }>;
  /** What it is at this moment. */
  status(options?: { signal?: AbortSignal }): Promise<SessionStatus>;
  /** Returns when every process is gone and every upstream session deleted. Again: the same receipt. */
  end(options?: { force?: boolean; wait?: true; signal?: AbortSignal }): Promise<Receipt>;
  /** Only begins to end it. */
  end(options: { force?: boolean; wait: false; signal?: AbortSignal }): Promise<undefined>;
  /** Cancels what is in flight and keeps the session; how many requests that were. */
  abort(options?: { signal?: AbortSignal }): Promise<number>;
  /** Renews the lease, perhaps with another ttl. */
  renew(ttl?: Duration, options?: { signal?: AbortSignal }): Promise<SessionStatus>;
  events(options?: { signal?: AbortSignal }): Promise<EventStream>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A daemon that answers. `await using` ends the sessions that were made through it. */
export class Leash {
  private constructor();
  /** Finds the daemon, or starts one that ends itself when its last session and this process are gone. */
  static connect(options?: ConnectOptions): Promise<Leash>;
  /** The servers run when it returns. If one can't, none does: `LeashError` with the code `server-failed`. */
  session(options: SessionOptions): Promise<Session>;
  /** The same for the time of a function. */
  withSession<T>(options: SessionOptions, job: (session: Session) => T | Promise<T>): Promise<T>;
  sessions(options?: { all?: boolean; label?: Record<string, string>; signal?: AbortSignal }): Promise<SessionStatus[]>;
  /** A session that somebody made. */
  attach(id: string, options?: { signal?: AbortSignal }): Promise<Session>;
  /** Ends every session of the daemon, whoever made it. */
  endAll(options?: { force?: boolean; signal?: AbortSignal }): Promise<Receipt[]>;
  events(options?: { session?: string; signal?: AbortSignal }): Promise<EventStream>;
  version(options?: { signal?: AbortSignal }): Promise<{ version: string; pid: number; api: number }>;
  /** Ends the sessions that were made through this object. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Whether everything that a receipt speaks of is proved to be gone. */
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
