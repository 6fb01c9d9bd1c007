import { approveAll, CopilotClient, type SessionConfig } from "@github/copilot-sdk";
import { allGone } from "mcp-leash";
import { leashSession } from "mcp-leash/sdk";

const client = new CopilotClient();
const config: SessionConfig = { model: "m", onPermissionRequest: approveAll, mcpServers: { files: { command: "npx", args: ["-y", "x"] } } };
const session = await leashSession(client, config);
await session.sendAndWait({ prompt: "hello" });
await session.disconnect();
console.log(session.receipts?.every(allGone));
