// mcp-leash: one job, one session.

import "./dispose.js";

export { LeashError } from "./error.js";
export { EventStream } from "./events.js";
export { allGone, Leash } from "./leash.js";
export { Session } from "./session.js";
