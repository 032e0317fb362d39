// mcp_peer.mjs [PORT] - an MCP server written with the official TypeScript SDK, for bench/mcp: one
// tool that runs `bash -c` as a child process, without isolation. On standard input and output, or
// over HTTP on a port of 127.0.0.1 with a session.
import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { z } from "zod";

function make() {
    const server = new McpServer({ name: "peer", version: "1" });
    server.registerTool("bash", { description: "Runs a command.", inputSchema: { command: z.string() } }, ({ command }) =>
        new Promise((resolve) => execFile("bash", ["-c", command], (error, stdout, stderr) =>
            resolve({ isError: Boolean(error), content: [{ type: "text", text: stdout + stderr }] }))));
    return server;
}

if (process.argv[2]) {
    const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID, enableJsonResponse: true });
    await make().connect(transport);
    createServer((request, response) => transport.handleRequest(request, response)).listen(Number(process.argv[2]), "127.0.0.1");
} else {
    await make().connect(new StdioServerTransport());
}
