import type { Receipt } from "../index.js";

/** Options of `leash run`, as in `leash run --help`: `{ grace: "5s", maxAge: "1h", spare: ["adb"], label: { team: "red" } }`. */
export interface LeashOptions {
  grace?: string;
  maxAge?: string;
  name?: string;
  label?: Record<string, string>;
  spare?: string[];
  owner?: string | string[];
  contain?: string;
  require?: string;
  memory?: string;
  pids?: number;
  cpu?: string;
  verbose?: boolean;
}

/** The parameters of `StdioClientTransport` of the official SDKs, and options of leash. */
export interface LeashedStdioServerParameters {
  command: string;
  args?: string[];
  /** Variables on top of those that the SDKs pass on: HOME, LOGNAME, PATH, SHELL, TERM, USER; and LEASH_*, for leash itself. */
  env?: Record<string, string>;
  /** As in `child_process.spawn`. The default is "inherit". */
  stderr?: "overlapped" | "pipe" | "ignore" | "inherit" | NodeStream | number;
  cwd?: string;
  /** The longest message, in bytes. The default is 10 MiB. */
  maxBufferSize?: number;
  leash?: LeashOptions;
}

// The types of Node are not needed to use this module. A stream of Node has these members.
/** A stream of Node. */
export interface NodeStream {
  pipe(destination: any, options?: { end?: boolean | undefined }): any;
  on(event: string | symbol, listener: (...args: any[]) => void): this;
}

/**
 * `StdioClientTransport` of the official SDKs (`@modelcontextprotocol/sdk` 1.x, `@modelcontextprotocol/client` 2.x), with the server on the
 * leash. `start()` rejects with the reason if the server cannot be started.
 */
export class LeashedStdioClientTransport {
  constructor(server: LeashedStdioServerParameters);
  onclose?: (() => void) | undefined;
  onerror?: ((error: Error) => void) | undefined;
  onmessage?: ((message: any) => void) | undefined;
  /** A stream from the beginning if the parameter `stderr` is "pipe" or "overlapped". */
  readonly stderr: any;
  /** The pid of the server. */
  readonly pid: number | null;
  /** The id of the session in `leash ps` and `leash history`. */
  readonly session: string;
  /** There when `close()` has returned and when `onclose` is called. */
  readonly receipt: Receipt | undefined;
  start(): Promise<void>;
  send(message: object): Promise<void>;
  /** Returns when every process that the server started is gone. */
  close(): Promise<void>;
}

/** The members of `StreamableHTTPClientTransport` that `leashedHttp` needs. */
export interface HttpTransport {
  readonly sessionId?: string | undefined;
  start(): Promise<void>;
  close(): Promise<void>;
  terminateSession(): Promise<void>;
}

/**
 * Puts a `StreamableHTTPClientTransport` of the official SDKs on the leash, and returns it. `close()` sends DELETE and waits for the answer.
 * If this process exits, crashes or is killed, leash sends DELETE with the headers of the latest request, which it has in memory only.
 */
export function leashedHttp<T extends HttpTransport>(
  transport: T,
): T & { readonly session: string; readonly receipt: Receipt | undefined };

/** The members of `CopilotClient` that `leashSession` needs. */
export interface CopilotSessions<C, S> {
  createSession(config: C): Promise<S>;
  deleteSession(sessionId: string): Promise<void>;
}

/**
 * `client.createSession(config)` of the Copilot SDK, with the stdio servers of `config` on the leash. When `session.disconnect()` or
 * `client.deleteSession()` has returned, every process that they started is gone.
 */
export function leashSession<C extends object, S extends { readonly sessionId: string; disconnect(): Promise<void> }>(
  client: CopilotSessions<C, S>,
  config: C,
): Promise<S & { receipts?: Receipt[] }>;
