// HTTP to the daemon: one connection per request, over its Unix socket or over TCP.

import http from "node:http";
import https from "node:https";

import { LeashError } from "./error.js";

/**
 * The address of a daemon.
 *
 * @typedef {{socketPath: string} | {url: URL, token: string}} Place
 */

// No answer of leash itself is longer.
const MOST = 64 << 20;

/** True if no daemon listens there: no daemon has seen the request. */
export function isNobody(error) {
  return ["ECONNREFUSED", "ENOENT", "ENOTSOCK"].includes(error?.code);
}

/** True if the connection broke: the daemon may have seen the request. */
export function isBroken(error) {
  return ["ECONNRESET", "EPIPE", "ECONNABORTED"].includes(error?.code);
}

/**
 * Sends a request and waits for the head of its answer.
 *
 * @param {Place} place
 * @param {{method: string, path: string, body?: unknown, accept?: string, signal?: AbortSignal}} request
 * @returns {Promise<http.IncomingMessage>}
 */
export function send(place, { method, path, body, accept = "application/json", signal }) {
  const text = body === undefined ? undefined : JSON.stringify(body);
  const headers = { accept };
  if (text !== undefined) {
    headers["content-type"] = "application/json";
    headers["content-length"] = Buffer.byteLength(text);
  }
  const options = { method, path, headers, agent: false, signal };
  let module = http;
  if ("socketPath" in place) {
    options.socketPath = place.socketPath;
    headers.host = "localhost";
  } else {
    module = place.url.protocol === "https:" ? https : http;
    options.host = place.url.hostname.replace(/^\[(.*)\]$/, "$1");
    options.port = place.url.port || undefined;
    headers.authorization = `Bearer ${place.token}`;
  }
  return new Promise((resolve, reject) => {
    const request = module.request(options, resolve);
    request.on("error", reject);
    request.end(text);
  });
}

/**
 * Reads the body of an answer to its end.
 *
 * @param {http.IncomingMessage} answer
 */
export async function read(answer) {
  const parts = [];
  let length = 0;
  for await (const part of answer) {
    length += part.length;
    if (length > MOST) {
      answer.destroy();
      throw new LeashError("invalid-answer", "leash answered with more than 64 MiB");
    }
    parts.push(part);
  }
  if (!answer.complete) {
    throw Object.assign(new Error("the answer was cut"), { code: "ECONNRESET" });
  }
  return Buffer.concat(parts).toString("utf8");
}

/**
 * The content of a successful answer; throws an error otherwise.
 *
 * @param {http.IncomingMessage} answer
 */
export async function document(answer) {
  const text = await read(answer);
  if (answer.statusCode < 200 || answer.statusCode > 299) {
    throw LeashError.from(answer.statusCode, text);
  }
  try {
    return text === "" ? undefined : JSON.parse(text);
  } catch (cause) {
    throw new LeashError("invalid-answer", "leash answered with something that is not JSON", { cause });
  }
}
