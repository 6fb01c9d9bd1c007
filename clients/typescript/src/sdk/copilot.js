// Sessions of the Copilot SDK with their servers on the leash.

import path from "node:path";

import { nativeBinary } from "../binary.js";
import { finish, runWords, sessionId } from "./program.js";

// The sessions of each client, by their ids.
const held = new WeakMap();

/**
 * Creates a session of the Copilot SDK whose stdio servers are on the leash. When `disconnect()` of the session or `deleteSession()` of
 * the client has returned, nothing is left of them; `receipts` of the session says so.
 */
export async function leashSession(client, config = {}) {
  const id = sessionId();
  const session = await client.createSession({
    ...config,
    ...(config.mcpServers && { mcpServers: onLeash(config.mcpServers, id) }),
    ...(config.customAgents && {
      customAgents: config.customAgents.map((agent) => ({
        ...agent,
        ...(agent.mcpServers && { mcpServers: onLeash(agent.mcpServers, id) }),
      })),
    }),
  }).catch(async (error) => {
    await finish(id, process.env);
    throw error;
  });
  const end = async () => {
    session.receipts = await finish(id, process.env);
  };
  sessionsOf(client).set(session.sessionId, end);
  const disconnect = session.disconnect.bind(session);
  session.disconnect = async () => {
    try {
      await disconnect();
    } finally {
      await end();
    }
  };
  session[Symbol.asyncDispose] = () => session.disconnect();
  return session;
}

/** The sessions of a client. From the first one on, its `deleteSession` ends their servers. */
function sessionsOf(client) {
  let sessions = held.get(client);
  if (sessions === undefined) {
    sessions = new Map();
    held.set(client, sessions);
    const deleteSession = client.deleteSession.bind(client);
    client.deleteSession = async (id) => {
      try {
        await deleteSession(id);
      } finally {
        await sessions.get(id)?.();
        sessions.delete(id);
      }
    };
  }
  return sessions;
}

/** The servers with `leash run` in front of each command. They live for this process and for the runtime that starts them. */
function onLeash(servers, session) {
  const put = ([name, server]) => {
    if (typeof server.command !== "string") {
      return [name, server];
    }
    const { leash, ...rest } = server;
    const options = { name, owner: ["parent", `pid:${process.pid}`], ...leash };
    return [name, { ...rest, command: program(), args: runWords({ session, options, server }) }];
  };
  return Object.fromEntries(Object.entries(servers).map(put));
}

/** The runtime may start servers in another directory. */
function program() {
  const found = nativeBinary();
  return found.includes("/") ? path.resolve(found) : found;
}
