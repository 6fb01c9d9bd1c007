// A transport over Streamable HTTP whose session is always ended.

import { LeashError } from "../error.js";
import { Guard } from "./guard.js";

const SESSION = "mcp-session-id";
const VERSION = "mcp-protocol-version";

// The time for the transport's own DELETE. After that, leash goes on with its own.
const DELETE_MS = 5_000;

/**
 * Puts a `StreamableHTTPClientTransport` of the official SDKs on the leash, and returns it. `close()` sends DELETE; if this process
 * exits, crashes or is killed, leash sends it.
 */
export function leashedHttp(transport) {
  if (!(transport._url instanceof URL) || typeof transport.terminateSession !== "function") {
    throw new LeashError("invalid-argument", "leashedHttp() takes a StreamableHTTPClientTransport of an MCP SDK");
  }
  const guard = new Guard();
  const own = { start: transport.start, send: transport.send, close: transport.close, fetch: transport._fetch ?? fetch };
  let closing;

  const close = async () => {
    if (transport.sessionId !== undefined) {
      // A failure is no reason to stop: leash tries, too, and the receipt says what became of the session.
      await within(DELETE_MS, transport.terminateSession());
    }
    await own.close.call(transport);
    await guard.end();
  };

  Object.assign(transport, {
    _fetch: (url, init) => watch(guard, own.fetch, url, init),
    start: async () => {
      await guard.start(transport._url.hostname, () => lost(transport, closing));
      return own.start.call(transport);
    },
    send: async (message, options) => {
      const sent = await own.send.call(transport, message, options);
      const { sessionId } = transport;
      if (sessionId !== undefined && closing === undefined && !guard.holds(sessionId)) {
        throw new LeashError("unsupported-sdk", "this version of the SDK does not show its session to leashedHttp()");
      }
      return sent;
    },
    close: () => (closing ??= close()),
  });
  return Object.defineProperties(transport, {
    receipt: { get: () => guard.receipt },
    session: { get: () => guard.session },
  });
}

/** Sends a request, and tells the guard of the session before the SDK knows it. */
async function watch(guard, send, url, init) {
  const headers = new Headers(init?.headers);
  const response = await send(url, init);
  const session = response.headers.get(SESSION) ?? headers.get(SESSION);
  if (session === null) {
    return response;
  }
  if (init?.method === "DELETE") {
    if (response.ok) {
      await guard.ended(session, response.status);
    }
  } else if (response.ok || guard.holds(session)) {
    const version = headers.get(VERSION) ?? undefined;
    await guard.hold({ url: String(url), session, version, headers: credentials(headers) });
  }
  return response;
}

// Headers that differ from request to request are no credentials.
const OF_MESSAGES = /^(accept|content-.*|last-event-id|mcp-.*)$/i;

function credentials(headers) {
  return [...headers].filter(([name]) => !OF_MESSAGES.test(name));
}

/** leash was killed or told to end. Its keeper has ended the session, so the transport is of no use any more. */
function lost(transport, closing) {
  if (closing === undefined) {
    transport.onerror?.(new LeashError("session-lost", "leash has ended the session"));
    transport.close().catch(() => {});
  }
}

/** Waits for a promise, whatever becomes of it, but not for long. */
async function within(ms, promise) {
  let timer;
  const late = new Promise((resolve) => (timer = setTimeout(resolve, ms)));
  await Promise.race([promise.catch(() => {}), late]);
  clearTimeout(timer);
}
