// The program `leash`, as the transports of this module start it.

import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";

import { nativeBinary } from "../binary.js";
import { LeashError } from "../error.js";

// The variables that the official SDKs pass on to a server.
const INHERITED = ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"];

/** The environment of a server, by the rules of the official SDKs. leash needs its own settings, LEASH_*, too. */
export function serverEnvironment(env = {}) {
  const isWanted = ([name, value]) => (INHERITED.includes(name) && !value.startsWith("()")) || name.startsWith("LEASH_");
  return { ...Object.fromEntries(Object.entries(process.env).filter(isWanted)), ...env };
}

/** A new id for a session of leash. */
export function sessionId() {
  return `sdk-${randomUUID()}`;
}

/** The options of `leash run` as words: `{maxAge: "1h", spare: ["adb"]}` is `--max-age=1h --spare=adb`. */
export function optionWords(options = {}) {
  return Object.entries(options).flatMap(([key, value]) => {
    const option = `--${key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
    if (value === undefined || value === null || value === false) {
      return [];
    }
    if (value === true) {
      return [option];
    }
    if (typeof value === "object" && !Array.isArray(value)) {
      return Object.entries(value).map(([name, text]) => `${option}=${name}=${text}`);
    }
    return (Array.isArray(value) ? value : [value]).map((one) => `${option}=${one}`);
  });
}

/** The command line that runs a server on the leash. leash changes the directory, because it says what is wrong with one. */
export function runWords({ session, options, server, report }) {
  const own = { session, cwd: server.cwd, reportFd: report };
  return ["run", ...optionWords({ ...options, ...own }), "--", server.command, ...(server.args ?? [])];
}

/** The error of a program that could not be started itself. */
export function noProgram(cause) {
  const hint = "install leash, or say where it is: LEASH_BIN";
  return new LeashError("no-leash", `cannot start \`${nativeBinary()}\`: ${cause.message}\nhint: ${hint}`, { cause });
}

/**
 * Waits until nothing is left of a session, and returns the receipts of its members. If their leash was killed, their keepers end them;
 * what a killed keeper did not finish, `leash end` does.
 */
export async function finish(session, env) {
  await output(["end", session], env);
  try {
    return JSON.parse(await output(["history", session, "--json"], env)).receipts;
  } catch {
    // No receipt is no proof, and the caller sees that there is none.
    return [];
  }
}

/** What a command of leash prints. */
async function output(words, env) {
  const child = spawn(nativeBinary(), words, { cwd: "/", env, stdio: ["ignore", "pipe", "ignore"] });
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (part) => (text += part));
  await new Promise((resolve) => child.on("error", resolve).on("close", resolve));
  return text;
}
