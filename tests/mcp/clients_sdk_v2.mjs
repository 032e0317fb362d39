// clients_sdk_v2.mjs PLAN - runs a plan of calls with the official TypeScript client, version 2,
// which prefers the revision 2026-07-28: see clients.py for the plan and the output.
import { readFileSync } from "node:fs";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const plan = JSON.parse(readFileSync(process.argv[2], "utf8"));
const transport = plan.url
    ? new StreamableHTTPClientTransport(new URL(plan.url), { requestInit: { headers: { Authorization: `Bearer ${plan.key}` } } })
    : new StdioClientTransport({ command: plan.command[0], args: plan.command.slice(1), env: plan.env, stderr: "inherit" });
const client = new Client({ name: "sdk-v2", version: "1" }, { versionNegotiation: { mode: "auto" } });
await client.connect(transport);
const { tools } = await client.listTools();
const results = [];
for (const call of plan.calls) {
    const text = JSON.stringify(call.arguments).replaceAll("$sandbox", results[0]?.structuredContent.sandbox);
    results.push(await client.callTool({ name: call.tool, arguments: JSON.parse(text) }));
}
const prompts = (await client.listPrompts()).prompts.map((p) => p.name);
const resources = (await client.listResources()).resources.map((r) => r.uri);
const revision = client.getNegotiatedProtocolVersion();
console.log(JSON.stringify({ server: client.getServerVersion().name, revision, tools, results, prompts, resources }));
await client.close();
