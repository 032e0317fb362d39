// clients_sdk_v1.mjs PLAN - runs a plan of calls with the official TypeScript SDK, version 1: see
// clients.py for the plan and the output.
import { readFileSync } from "node:fs";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const plan = JSON.parse(readFileSync(process.argv[2], "utf8"));
const transport = plan.url
    ? new StreamableHTTPClientTransport(new URL(plan.url), { requestInit: { headers: { Authorization: `Bearer ${plan.key}` } } })
    : new StdioClientTransport({ command: plan.command[0], args: plan.command.slice(1), env: plan.env, stderr: "inherit" });
const client = new Client({ name: "sdk-v1", version: "1" });
await client.connect(transport);
const { tools } = await client.listTools();
const results = [];
for (const call of plan.calls) {
    const text = JSON.stringify(call.arguments).replaceAll("$sandbox", results[0]?.structuredContent.sandbox);
    results.push(await client.callTool({ name: call.tool, arguments: JSON.parse(text) }));
}
const prompts = (await client.listPrompts()).prompts.map((p) => p.name);
const resources = (await client.listResources()).resources.map((r) => r.uri);
console.log(JSON.stringify({ server: client.getServerVersion().name, tools, results, prompts, resources }));
if (plan.url) await transport.terminateSession();
await client.close();
