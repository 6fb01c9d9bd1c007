// Finds the daemon, and starts one if there is none.

import { spawn } from "node:child_process";
import fs from "node:fs";
import path from "node:path";

import { LeashError } from "./error.js";

// A daemon listens within milliseconds. This limit is for busy machines.
const PATIENCE_MS = 30_000;
const STEP_MS = 20;

// A daemon that cannot start says why at once.
const REASON_MS = 5_000;

/** The runtime directory, by the same rules as the program has. */
export function runtimeDir(env = process.env) {
  if (env.LEASH_RUNTIME_DIR) {
    return path.resolve(env.LEASH_RUNTIME_DIR);
  }
  const me = process.geteuid();
  const session = env.XDG_RUNTIME_DIR;
  const usual = `/run/user/${me}`;
  if (session && path.isAbsolute(session) && isOurs(session, me) && fs.realpathSync(session) !== usual) {
    return path.join(session, "leash");
  }
  if (me === 0) {
    return isDirectory("/run") ? "/run/leash" : "/tmp/leash-0";
  }
  return isOurs(usual, me) ? `${usual}/leash` : `/tmp/leash-${me}`;
}

function isOurs(dir, me) {
  try {
    const found = fs.statSync(dir);
    return found.isDirectory() && found.uid === me;
  } catch {
    return false;
  }
}

function isDirectory(dir) {
  try {
    return fs.statSync(dir).isDirectory();
  } catch {
    return false;
  }
}

/** The command line of a daemon that ends itself when it has no session and this process is gone. */
function words(control) {
  const place = control === undefined ? [] : ["--control", control];
  return ["serve", "--on-demand", "--starter", String(process.pid), ...place];
}

// The daemon is independent of this process: it must not keep our directory, terminal or output open.
function options(stderr) {
  return { cwd: "/", detached: true, env: environment(), stdio: ["ignore", "ignore", stderr] };
}

function environment() {
  const env = { ...process.env };
  if (env.LEASH_RUNTIME_DIR) {
    env.LEASH_RUNTIME_DIR = path.resolve(env.LEASH_RUNTIME_DIR);
  }
  return env;
}

/**
 * Waits until nothing is left of a session whose daemon was killed. Its keepers end it; what they did not finish is in the ledger.
 *
 * @param {{bin: string, id: string}} order
 */
export function finish({ bin, id }) {
  const child = spawn(bin, ["end", id], { cwd: "/", env: environment(), stdio: "ignore" });
  return new Promise((resolve) => child.on("error", resolve).on("exit", resolve));
}

/**
 * Starts a daemon and waits until `isThere` finds one, this or another: of several that start at once one stays, and the others exit.
 *
 * @param {{bin: string, control?: string, isThere: () => Promise<boolean>, signal?: AbortSignal}} order
 */
export async function start({ bin, control, isThere, signal }) {
  const until = Date.now() + PATIENCE_MS;
  let child = launch(bin, control);
  for (;;) {
    signal?.throwIfAborted();
    if (await isThere()) {
      return;
    }
    if (child.failed) {
      throw await reason(bin, control, child);
    }
    if (Date.now() > until) {
      throw new LeashError("daemon-failed", `\`${bin} serve --on-demand\` does not answer after ${PATIENCE_MS / 1000} s`);
    }
    await pause(STEP_MS);
    // It exited because another daemon was there, which has exited as well by now.
    if (child.left && !(await isThere())) {
      child = launch(bin, control);
    }
  }
}

/** A daemon of which only the exit is watched. */
function launch(bin, control) {
  const state = { left: false, failed: false, error: undefined, code: undefined };
  const child = spawn(bin, words(control), options("ignore"));
  child.on("error", (error) => Object.assign(state, { failed: true, error }));
  child.on("exit", (code) => Object.assign(state, { left: code === 0, failed: code !== 0, code }));
  child.unref();
  return state;
}

/** The reason of the failure. Its stderr is /dev/null, because servers inherit it; so it is started once more with a pipe. */
async function reason(bin, control, { error, code }) {
  if (error !== undefined) {
    const hint = "install leash, or say where it is: the option `bin`, or LEASH_BIN";
    return new LeashError("no-daemon", `cannot start \`${bin}\`: ${error.message}\nhint: ${hint}`, { cause: error });
  }
  const child = spawn(bin, words(control), options("pipe"));
  let text = "";
  child.stderr.on("data", (part) => (text += part));
  await new Promise((resolve) => {
    // This time it may start. It holds our pipe as stderr, so it is ended.
    const timer = setTimeout(() => child.kill("SIGTERM"), REASON_MS);
    child.on("error", resolve);
    child.on("close", resolve);
    child.on("exit", () => clearTimeout(timer));
  });
  const said = text.trim().slice(0, 4_000);
  return new LeashError("daemon-failed", `\`${bin} serve --on-demand\` failed with exit code ${code}${said ? `\n${said}` : ""}`);
}

/** @param {number} ms */
export function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
