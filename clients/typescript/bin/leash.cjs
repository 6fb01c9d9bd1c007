#!/bin/sh
":" //; self=$(readlink -f -- "$0"); case $(uname -m) in x86_64) cpu=x64 ;; aarch64) cpu=arm64 ;; *) cpu=unknown ;; esac
":" //; for dir in "${self%/bin/*}/node_modules" "${self%/mcp-leash/bin/*}"; do leash="$dir/@mcp-leash/linux-$cpu/bin/leash"
":" //; if [ -x "$leash" ]; then exec "$leash" "$@"; fi; done; exec node "$self" "$@"

// Starts the native program, as a shell script and as JavaScript. npm, pnpm, bun and yarn 1 run the lines above: the shell
// replaces itself by the program, and no Node starts. Yarn 2 and later run every program of a package with Node, which does
// not read the shell's lines as code: `":"` is a string, and the rest is a comment.

"use strict";

const { spawn } = require("node:child_process");
const fs = require("node:fs");
const { constants } = require("node:os");
const path = require("node:path");

const PACKAGE = `@mcp-leash/${process.platform}-${process.arch}`;

// The exit code of leash for its own failures.
const FAILED = 125;

// The signals that end or tell a program something. The kernel does not let a process catch SIGKILL and SIGSTOP; Node must
// not catch the signals of a crash; and a stopped launcher goes on with SIGCONT by itself.
const FORWARDED = ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGVTALRM", "SIGWINCH", "SIGIO", "SIGPWR"];

function find() {
  try {
    return path.join(path.dirname(require.resolve(`${PACKAGE}/package.json`)), "bin", "leash");
  } catch {
    return undefined;
  }
}

function fail(text, hint) {
  fs.writeSync(2, `error: ${text}\n\nhint: ${hint}\n`);
  process.exitCode = FAILED;
}

// Node raises its own limit on open files, which leash and the servers would inherit. Our parent has the limit that we had.
function limit() {
  try {
    return /^Max open files +(\S+)/m.exec(fs.readFileSync(`/proc/${process.ppid}/limits`, "utf8"))?.[1];
  } catch {
    return undefined;
  }
}

function run(program, words) {
  const env = { ...process.env, LEASH_LAUNCHER: `${process.pid} ${limit() ?? "unknown"}` };
  if (process.execve !== undefined) {
    process.execve(program, [program, ...words], env);
  }
  // Before the start, so that no signal ends only this process. Node calls the handlers later, when there is a child.
  let child;
  for (const signal of FORWARDED) {
    process.on(signal, () => child.kill(signal));
  }
  // A process group of its own: a signal for our group comes from us alone, and so comes once.
  child = spawn(program, words, { stdio: "inherit", env, detached: true });
  child.on("error", (error) => fail(`cannot start \`${program}\`: ${error.message}`, "install mcp-leash again"));
  child.on("exit", (code, signal) => (signal === null ? process.exit(code) : die(signal)));
}

// Ends this process in the way in which leash ended.
function die(signal) {
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
  // Node ignores some signals, such as SIGPIPE.
  process.exit(128 + constants.signals[signal]);
}

const program = find();
if (program !== undefined && fs.existsSync(program)) {
  run(program, process.argv.slice(2));
} else if (process.platform === "linux" && ["x64", "arm64"].includes(process.arch)) {
  const hint = "install it with its optional packages: `npm install --include=optional mcp-leash`";
  fail(`the package \`${PACKAGE}\`, which has the program, is not installed`, hint);
} else {
  fail(`leash does not run on ${process.platform}-${process.arch}`, "use Linux on x64");
}
