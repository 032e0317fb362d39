#!/usr/bin/env python3
"""clients.py [WORD...] - calls every tool of a server with MCP clients of others, over HTTP and
through `cove mcp`, and checks the contents of the answers: part of `make check-mcp`. WORD selects
the clients whose name has it.

The clients are the official SDKs and the command line of the Inspector, installed by npm and pip
at fixed versions into build-mcp/. A client gets the path of a plan as its argument:

    {"url": ..., "key": ..., "calls": [{"tool": ..., "arguments": {...}}]}

or, instead of URL and key, {"command": [...], "env": {...}}

and prints one object with the tools that the server lists and the result of each call, as the SDK
returned them. `$sandbox` in an argument is the sandbox of the first result. A tool without a call
in the plan is a failure.
"""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from run import Relay  # noqa: E402  pylint: disable=wrong-import-position
from server import Launched  # noqa: E402  pylint: disable=wrong-import-position

COVE = os.path.abspath(os.environ.get("COVE", os.path.join(ROOT, "build/src/main/cove")))
CACHE = os.environ.get("COVE_MCP_CACHE", os.path.join(ROOT, "build-mcp"))
NODE_PACKAGES = ["@modelcontextprotocol/sdk@1.32.2", "@modelcontextprotocol/client@2.4.0", "@modelcontextprotocol/inspector@0.15.0"]
PYTHON_PACKAGE = "mcp==2.3.0"
NODE_DIR, PYTHON_DIR = os.path.join(CACHE, "clients"), os.path.join(CACHE, "python")
# The revision that a client and this server agree on.
CLIENTS = [("sdk_v1.mjs", None), ("sdk_v2.mjs", "2026-07-28"), ("python.py", "2026-07-28")]

HERE_ARGUMENT = {"sandbox": "$sandbox"}
FILE = {**HERE_ARGUMENT, "file_path": "/workspace/poem.txt"}
# (tool, arguments, text of the answer that a model sees, members of structuredContent)
CALLS = [
    ("create_sandbox", {"name": "clients"}, "sandbox", {"state": "running", "name": "clients"}),
    ("list_sandboxes", {}, "clients", {"truncated": False}),
    ("bash", {"command": "echo out; echo err >&2; exit 3", **HERE_ARGUMENT}, "err", {"exitCode": 3, "stdout": "out\n"}),
    ("shell", {"command": "printf %s $((6*7))", **HERE_ARGUMENT}, "42", {"exitCode": 0, "stdout": "42"}),
    ("exec", {"argv": ["cat"], "stdin": "given", **HERE_ARGUMENT}, "given", {"stdout": "given"}),
    ("run_code", {"code": "x = 6 * 7\nx", "language": "python", **HERE_ARGUMENT}, "42", {"outcome": "success"}),
    ("run_code", {"code": "print(x + 1)", **HERE_ARGUMENT}, "43", {"stdout": "43\n"}),
    ("code_executor", {"code": "import sys; print(sys.version_info.major)"}, "3", {"stdout": "3\n"}),
    ("write_file", {**FILE, "content": "roses\nviolets\n\u00e9\n"}, "poem.txt", {}),
    ("read_file", FILE, "violets", {}),
    ("edit_file", {**FILE, "old_string": "roses", "new_string": "tulips"}, "poem.txt", {}),
    ("grep", {"pattern": "tulip", "path": "/workspace", **HERE_ARGUMENT}, "tulips", {}),
    ("glob", {"pattern": "*.txt", "path": "/workspace", **HERE_ARGUMENT}, "poem.txt", {}),
    ("list", {"path": "/workspace", **HERE_ARGUMENT}, "poem.txt", {}),
    ("stage_files", {"files": [{"name": "staged.txt", "content_base64": "c3RhZ2Vk"}], **HERE_ARGUMENT}, "staged.txt", {}),
    ("return_files", {"paths": ["poem.txt"], **HERE_ARGUMENT}, "poem.txt", {}),
    ("run_sandbox", {"code": "echo $((6*7))", "language": "bash", **HERE_ARGUMENT}, "42", {"state": "completed", "stdout": "42\n"}),
    ("search_tools", {"query": "grep"}, "grep", {}),
    ("simple_execute_code", {"code": "6 * 7"}, "42", {"success": True, "value": "42"}),
    ("mathematical_solve", {"problem": "What is 15 percent of 80?"}, "12", {"answer": "12"}),
    ("read_file", {**HERE_ARGUMENT, "file_path": "/workspace/missing"}, "missing", None),
    ("delete_sandbox", HERE_ARGUMENT, "ended", {"state": "ended"}),
]


class Report:
    def __init__(self):
        self.count = self.failed = 0

    def row(self, title, problems):
        self.count += 1
        self.failed += bool(problems)
        print(f"{'not ok' if problems else 'ok'} {self.count} - {title}")
        for problem in problems:
            print("# " + problem.replace("\n", "\n# ")[:3000])
        sys.stdout.flush()


def install():
    if not os.path.exists(os.path.join(NODE_DIR, "node_modules/.bin/mcp-inspector")):
        os.makedirs(NODE_DIR, exist_ok=True)
        with open(os.path.join(NODE_DIR, "package.json"), "w", encoding="utf-8") as f:
            f.write("{}")
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", *NODE_PACKAGES], cwd=NODE_DIR, check=True,
                       stdout=subprocess.DEVNULL)
    python = os.path.join(PYTHON_DIR, "bin/python")
    if not os.path.exists(os.path.join(PYTHON_DIR, "bin/mcp")):
        subprocess.run([sys.executable, "-m", "venv", PYTHON_DIR], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", PYTHON_PACKAGE], check=True)


def text_of(result):
    return "\n".join(part.get("text", "") for part in result["content"])


def check_result(tool, expected_text, members, result):
    """A call whose members are None must fail as a tool fails."""
    if members is None:
        ok = result.get("isError") and expected_text in text_of(result)
        return [] if ok else [f"{tool}: this call must fail: {json.dumps(result)[:800]}"]
    structured = result.get("structuredContent") or {}
    problems = []
    if result.get("isError") and tool != "bash":
        problems.append(f"{tool}: {text_of(result)[:800]}")
    if expected_text not in text_of(result):
        problems.append(f"{tool}: no '{expected_text}' in {text_of(result)[:800]}")
    for key, value in members.items():
        if structured.get(key) != value:
            problems.append(f"{tool}: {key} is {structured.get(key)!r}, not {value!r}")
    return problems


def check_output(answer, revision):
    problems = []
    missing = {t["name"] for t in answer["tools"]} ^ {call[0] for call in CALLS}
    if missing:
        problems.append(f"the plan and the list of tools differ in {', '.join(sorted(missing))}")
    for tool in answer["tools"]:
        if tool["inputSchema"].get("type") != "object" or "readOnlyHint" not in tool.get("annotations", {}):
            problems.append(f"{tool['name']}: the schema is not of an object, or hints are missing")
    if answer["server"] != "cove" or answer.get("revision") != revision:
        problems.append(f"server {answer['server']}, revision {answer.get('revision')}")
    if len(answer["results"]) != len(CALLS):
        problems.append(f"{len(answer['results'])} results of {len(CALLS)} calls")
    for (tool, _, text, members), result in zip(CALLS, answer["results"]):
        problems += check_result(tool, text, members, result)
    return problems


def run_client(script, revision, plan, directory):
    path = os.path.join(directory, "plan.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(plan, f)
    if script.endswith(".py"):
        command = [os.path.join(PYTHON_DIR, "bin/python"), os.path.join(HERE, "clients_" + script), path]
    else:  # a module is searched in the directories above its importer
        copy = os.path.join(NODE_DIR, "clients_" + script)
        with open(os.path.join(HERE, "clients_" + script), encoding="utf-8") as f, open(copy, "w", encoding="utf-8") as to:
            to.write(f.read())
        command = ["node", copy, path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0 or not done.stdout.strip():
        return [f"status {done.returncode}", done.stdout[-1000:], done.stderr[-2000:]]
    problems = check_output(json.loads(done.stdout), revision)
    if done.stderr.strip():
        problems.append(f"standard error: {done.stderr[-1000:]}")
    return problems


def inspect(where, *words, env=None):
    """The answer of the command line of the Inspector."""
    done = subprocess.run([os.path.join(NODE_DIR, "node_modules/.bin/mcp-inspector"), "--cli", *where, *words],
                          capture_output=True, text=True, timeout=120, check=False, env=env)
    if done.returncode != 0:
        return {"failed": done.stdout[-500:] + done.stderr[-1500:]}
    return json.loads(done.stdout)


def check_inspector(where, env=None):
    """Each command is a session of its own."""
    problems = []
    tools = {t["name"] for t in inspect(where, "--method", "tools/list", env=env).get("tools", [])}
    if tools != {call[0] for call in CALLS}:
        problems.append(f"tools/list: {sorted(tools)}")
    sandbox = None
    for tool, arguments, text, members in [("bash", {"command": "echo $((6*7))"}, "42", {"exitCode": 0}), *CALLS]:
        words = [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in arguments.items()]
        words = [part for word in words for part in ("--tool-arg", word.replace("$sandbox", sandbox or ""))]
        result = inspect(where, "--method", "tools/call", "--tool-name", tool, *words, env=env)
        problems += check_result(tool, text, members, result) if "content" in result else [f"{tool}: {json.dumps(result)[:1500]}"]
        sandbox = sandbox or (tool == "create_sandbox" and result.get("structuredContent", {}).get("sandbox"))
    return problems


def main():
    words = sys.argv[1:]
    install()
    report = Report()
    with tempfile.TemporaryDirectory(prefix="cove-mcp-") as directory:
        launched = Launched(COVE, directory)
        env = {"COVE_URL": launched.url, "COVE_API_KEY": launched.key, "PATH": os.environ["PATH"]}
        calls = [{"tool": tool, "arguments": arguments} for tool, arguments, _, _ in CALLS]
        ways = {"HTTP": {"url": launched.url + "/mcp", "key": launched.key},
                "standard input": {"command": [COVE, "mcp"], "env": env}}
        try:
            for script, revision in CLIENTS:
                for way, plan in ways.items():
                    if not words or any(word in script for word in words):
                        report.row(f"clients/{script.partition('.')[0]}: every tool over {way}",
                                   run_client(script, revision, {**plan, "calls": calls}, directory))
            if not words or "inspector" in words:
                host, _, port = launched.url.partition("//")[2].rpartition(":")
                relay = Relay(host, int(port), launched.key)  # the Inspector sends no key
                report.row("clients/inspector: every tool over HTTP",
                           check_inspector([f"http://127.0.0.1:{relay.port}/mcp", "--transport", "http"]))
                report.row("clients/inspector: every tool over standard input",
                           check_inspector([COVE, "mcp"], dict(os.environ, **env)))
        finally:
            launched.stop()
    print(f"1..{report.count}")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
