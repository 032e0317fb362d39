"""The WebSocket of a sandbox with foreign clients: Python's websockets, ws of Node, and the
WebSocket that Node shares with browsers.

Each runs a program with input, leaves a terminal in the middle, reconnects at the same offset, and
prints what it saw.
"""
import json
import os
import subprocess

from cove import ROOT
from served import Served

PYTHON = '''
import asyncio, json, sys
import websockets.asyncio.client, websockets.sync.client

url, key, seen = sys.argv[1], sys.argv[2], {}
way = {"additional_headers": {"Authorization": "Bearer " + key}, "subprotocols": ["cove.v1"]}


class Talk:
    def __init__(self):
        self.text, self.real, self.offset, self.code, self.started = "", None, 0, None, False

    def take(self, m):
        if m["type"] == "started":
            self.real, self.started = m["execution"]["id"], True
        elif m["type"] == "output" and m["stream"] == "stdout":
            self.text += m["data"]
            self.offset = m["offset"] + len(m["data"].encode())
        elif m["type"] == "end":
            self.code = m["execution"]["exitCode"]
        assert m["type"] != "error", m


def waits():
    talk = Talk()
    with websockets.sync.client.connect(url, **way) as ws:
        assert ws.subprotocol == "cove.v1", ws.subprotocol
        ws.send(json.dumps({"type": "execute", "label": "one", "command": ["sh", "-c", "cat; exit 3"], "stdinOpen": True}))
        while talk.code is None:
            had = talk.real
            talk.take(json.loads(ws.recv(timeout=120)))
            if talk.real and not had:
                ws.send(json.dumps({"type": "stdin", "label": "one", "data": "typed", "close": True}))
    seen["program"] = [talk.text, talk.code]


async def awaits():
    talk = Talk()

    async def until(ws, done):
        while not done():
            talk.take(json.loads(await asyncio.wait_for(ws.recv(), 120)))

    async with websockets.asyncio.client.connect(url, **way) as ws:
        await ws.send(json.dumps({"type": "execute", "label": "tty", "command": ["sh", "-c", "stty -echo; echo up; cat; exit 5"], "tty": True}))
        await until(ws, lambda: "up" in talk.text)
        await ws.send(json.dumps({"type": "stdin", "label": "tty", "data": "first\\n"}))
        await until(ws, lambda: "first\\r\\n" in talk.text)
    async with websockets.asyncio.client.connect(url, **way) as ws:
        await ws.send(json.dumps({"type": "resume", "executionId": talk.real, "label": "again", "stdoutOffset": talk.offset}))
        talk.started = False
        await until(ws, lambda: talk.started)
        await ws.send(json.dumps({"type": "stdin", "label": "again", "data": "second\\n\\u0004"}))
        await until(ws, lambda: talk.code is not None)
    seen["terminal"] = [talk.text.replace("\\r", ""), talk.code]


waits()
asyncio.run(awaits())
print(json.dumps(seen))
'''

NODE = '''
const [how, url, key] = process.argv.slice(2);
const open = () => how === "own" ? new WebSocket(url, ["cove.v1", "cove.key." + key])
  : new (require("ws"))(url, ["cove.v1"], { headers: { Authorization: "Bearer " + key } });
const seen = {};

// One connection: what is sent first, and what each message is answered with; it ends when `hear` returns true.
function talk(first, hear) {
  return new Promise((resolve, reject) => {
    const ws = open();
    const say = (m) => ws.send(JSON.stringify(m));
    ws.onopen = () => { if (ws.protocol !== "cove.v1") reject(new Error(ws.protocol)); else say(first); };
    ws.onmessage = (event) => {
      const m = JSON.parse(event.data);
      if (m.type === "error") reject(new Error(event.data));
      else if (hear(m, say)) ws.close(1000);
    };
    ws.onerror = (event) => reject(new Error(event.message || "the socket failed"));
    ws.onclose = resolve;
  });
}

async function main() {
  let text = "", code = null;
  await talk({ type: "execute", label: "one", command: ["sh", "-c", "cat; exit 3"], stdinOpen: true }, (m, say) => {
    if (m.type === "started") say({ type: "stdin", label: "one", data: "typed", close: true });
    if (m.type === "output") text += m.data;
    if (m.type === "end") code = m.execution.exitCode;
    return code !== null;
  });
  seen.program = [text, code];
  let real, offset = 0, typed = false;
  text = ""; code = null;
  await talk({ type: "execute", label: "tty", command: ["sh", "-c", "stty -echo; echo up; cat; exit 5"], tty: true }, (m, say) => {
    if (m.type === "started") real = m.execution.id;
    if (m.type === "output") { text += m.data; offset = m.offset + Buffer.byteLength(m.data); }
    if (text.includes("up") && !typed) { typed = true; say({ type: "stdin", label: "tty", data: "first\\n" }); }
    return text.includes("first\\r\\n");
  });
  await talk({ type: "resume", executionId: real, label: "again", stdoutOffset: offset }, (m, say) => {
    if (m.type === "started") say({ type: "stdin", label: "again", data: "second\\n\\u0004" });
    if (m.type === "output") text += m.data;
    if (m.type === "end") code = m.execution.exitCode;
    return code !== null;
  });
  seen.terminal = [text.replaceAll("\\r", ""), code];
  console.log(JSON.stringify(seen));
}

main().catch((error) => { console.error(error); process.exit(1); });
'''
SEEN = {"program": ["typed", 3], "terminal": ["up\nfirst\nsecond\n", 5]}
MODULES = "/usr/share/nodejs:/usr/lib/nodejs"  # where Debian's packages for Node install modules


def answers(*command, **env):
    """Whether a program can be run and exits with status 0."""
    try:
        return subprocess.run(command, env={**os.environ, **env}, stdin=subprocess.DEVNULL, capture_output=True, timeout=60).returncode == 0
    except FileNotFoundError:
        return False


class Clients(Served):
    def sees(self, *command, **env):
        sandbox = self.cove("sandbox", "create", "-q", "--runtime", "sh", "--lifetime", "1h").out.strip()
        url = f"{self.launched.url.replace('http', 'ws', 1)}/v1/sandboxes/{sandbox}/stream"
        done = subprocess.run([*command, url, self.key], env={**os.environ, **env}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout), SEEN)

    def test_websockets_of_python_runs_a_program_and_reconnects_to_a_terminal(self):
        found = subprocess.run([os.path.join(ROOT, "tests/sdk/run.py"), "--python"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, timeout=900)
        if found.returncode == 77:
            self.skipTest(found.stderr.strip())
        self.assertEqual(found.returncode, 0, found.stderr)
        self.sees(found.stdout.strip(), self.file("client.py", PYTHON))

    def test_ws_of_node_runs_a_program_and_reconnects_to_a_terminal(self):
        if not answers("node", "-e", "require('ws')", NODE_PATH=MODULES):
            self.skipTest("node with the package ws is missing: apt-get install nodejs node-ws")
        self.sees("node", self.file("client.js", NODE), "ws", NODE_PATH=MODULES)

    def test_the_websocket_of_browsers_works_with_its_key_as_a_subprotocol(self):
        for flags in ((), ("--experimental-websocket",)):
            if answers("node", *flags, "-e", "if (typeof WebSocket !== 'function') process.exit(1)"):
                self.sees("node", *flags, self.file("client.js", NODE), "own")
                return
        self.skipTest("this node has no built-in WebSocket; versions from 22 on have it, and from 20.10 on with a flag")
