// A host that does not end its session: node host.mjs 0|1 exit|kill URL. The first number chooses the SDK.

import { leashedHttp, LeashedStdioClientTransport } from "mcp-leash/sdk";

import { connected, sdks, stubborn } from "./sdks.mjs";

const [which, way, url] = process.argv.slice(2);
const sdk = sdks[Number(which)];
const stdio = new LeashedStdioClientTransport(stubborn());
const { call } = await connected(sdk, stdio);
const http = leashedHttp(new sdk.Http(new URL(url), { requestInit: { headers: { authorization: "Bearer hush" } } }));
await connected(sdk, http);
const pids = await call("pids");
process.stdout.write(`${JSON.stringify({ pids, sessions: [stdio.session, http.session] })}\n`, () => {
  if (way === "exit") {
    process.exit(0);
  }
  setInterval(() => {}, 1 << 30);
});
