// The errors: one type with a code.

/** @typedef {{type?: string, title?: string, status?: number, detail?: string, hint?: string, [member: string]: unknown}} Problem */

const PREFIX = "urn:leash:problem:";

/**
 * A call that failed. `code` is the name of the daemon's problem (`server-failed`, `no-such-session`, `invalid-request`...) or one of
 * this module's own: `no-daemon`, `daemon-failed`, `connection-lost`, `session-lost`, `invalid-answer`, `invalid-argument`.
 */
export class LeashError extends Error {
  /**
   * @param {string} code
   * @param {string} message
   * @param {{problem?: Problem, status?: number, cause?: unknown}} [more]
   */
  constructor(code, message, { problem, status, cause } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "LeashError";
    this.code = code;
    this.status = status;
    this.problem = problem;
  }

  /**
   * The error for an answer of the daemon.
   *
   * @param {number} status
   * @param {string} text the body
   */
  static from(status, text) {
    const problem = parse(text);
    if (problem === undefined) {
      return new LeashError("invalid-answer", `leash answered ${status}: ${text.slice(0, 200)}`, { status });
    }
    const code = String(problem.type ?? "").startsWith(PREFIX) ? problem.type.slice(PREFIX.length) : `http-${status}`;
    return new LeashError(code, describe(problem, status), { problem, status });
  }
}

/** @param {string} text */
function parse(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}

/** One text for people: what failed, why, each mistake, what to do. */
function describe(problem, status) {
  let text = problem.title ?? `leash answered ${status}`;
  if (problem.detail && problem.detail !== problem.title) {
    text += `: ${problem.detail}`;
  }
  for (const mistake of Array.isArray(problem.errors) ? problem.errors : []) {
    text += `\n  ${mistake.pointer ?? ""}: ${mistake.what ?? ""}${mistake.hint ? ` (${mistake.hint})` : ""}`;
  }
  return problem.hint ? `${text}\nhint: ${problem.hint}` : text;
}
