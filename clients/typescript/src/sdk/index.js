// mcp-leash/sdk: transports for hosts that use an official MCP SDK, and sessions of the Copilot SDK.

import "../dispose.js";

export { leashSession } from "./copilot.js";
export { leashedHttp } from "./http.js";
export { LeashedStdioClientTransport } from "./stdio.js";
