"""clients_python.py PLAN - runs a plan of calls with the official Python SDK: see clients.py for
the plan and the output."""
import asyncio
import json
import sys

from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client


def target(plan):
    if "url" not in plan:
        return StdioServerParameters(command=plan["command"][0], args=plan["command"][1:], env=plan["env"])
    return streamable_http_client(plan["url"], http_client=create_mcp_http_client(headers={"Authorization": f"Bearer {plan['key']}"}))


async def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        plan = json.load(f)
    async with Client(target(plan)) as client:
        tools = [t.model_dump(by_alias=True, mode="json", exclude_none=True) for t in (await client.list_tools()).tools]
        results = []
        for call in plan["calls"]:
            sandbox = results[0]["structuredContent"]["sandbox"] if results else ""
            result = await client.call_tool(call["tool"], json.loads(json.dumps(call["arguments"]).replace("$sandbox", sandbox)))
            results.append(result.model_dump(by_alias=True, mode="json", exclude_none=True))
        prompts = [p.name for p in (await client.list_prompts()).prompts]
        resources = [str(r.uri) for r in (await client.list_resources()).resources]
        print(json.dumps({"server": client.server_info.name, "revision": client.protocol_version, "tools": tools,
                          "results": results, "prompts": prompts, "resources": resources}))


asyncio.run(main())
