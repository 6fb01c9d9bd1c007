// The `mcpServers` of a request, and the servers of a session.

import path from "node:path";

import { LeashError } from "./error.js";

/**
 * A server started by the daemon would have the daemon's environment and directory. The caller expects its own.
 *
 * @param {Record<string, any>} mcpServers
 * @param {boolean} inheritEnv
 */
export function outgoing(mcpServers, inheritEnv) {
  if (typeof mcpServers !== "object" || mcpServers === null) {
    throw new LeashError("invalid-argument", "`mcpServers` is missing: {NAME: {command, args, env, cwd} or {url, headers}}");
  }
  const sent = {};
  for (const [name, server] of Object.entries(mcpServers)) {
    sent[name] = inheritEnv && typeof server?.command === "string" ? atHome(server) : server;
  }
  return sent;
}

function atHome(server) {
  // A shell function exported by bash has an invalid name (`BASH_FUNC_x%%`), and is passed on all the same.
  return { ...server, env: { ...process.env, ...server.env }, cwd: path.resolve(server.cwd ?? ".") };
}

/**
 * The servers of a session by their names.
 *
 * @param {any[]} servers
 */
export function incoming(servers) {
  return Object.fromEntries(servers.map((server) => [server.name, server]));
}

/**
 * A duration as the API takes it.
 *
 * @param {string | number | undefined} value a text such as `30s`, or milliseconds
 */
export function duration(value) {
  return typeof value === "number" ? `${Math.round(value)}ms` : value;
}

/**
 * The query part of a URL; empty without parameters.
 *
 * @param {[string, string][]} pairs
 */
export function query(pairs) {
  const text = new URLSearchParams(pairs).toString();
  return text === "" ? "" : `?${text}`;
}
