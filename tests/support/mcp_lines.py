"""mcp_lines.py - an MCP client on the standard input and output of a program.

    client = Lines([COVE, "mcp"], env)
    client.initialize()                          # the era of sessions
    client.call("bash", {"command": "true"})     # the result
    client.end()                                 # closes the input; (status, standard error)

Every line of output must be one message of JSON-RPC; anything else fails the caller.
"""
import json
import queue
import subprocess
import threading

MODERN = "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "lines", "version": "1"}}


class Lines:
    def __init__(self, command, env=None, modern=False, **options):
        self.modern, self.last_id = modern, 0
        # pylint: disable-next=consider-using-with
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env=env, bufsize=0, **options)
        self.messages = queue.Queue()
        self.notes = []
        self.readers = [threading.Thread(target=self.read_output, daemon=True),
                        threading.Thread(target=self.read_notes, daemon=True)]
        for reader in self.readers:
            reader.start()

    def read_output(self):
        buffered = self.process.stdout
        rest = b""
        while True:
            data = buffered.read(1 << 16)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self.messages.put(line)
        if rest:
            self.messages.put(b"incomplete: " + rest)
        self.messages.put(None)

    def read_notes(self):
        for line in self.process.stderr:
            self.notes.append(line.decode(errors="replace"))

    def write(self, line):
        self.process.stdin.write(line if isinstance(line, bytes) else line.encode() + b"\n")

    def send(self, method, params=None, number=None):
        message = {"jsonrpc": "2.0", "method": method}
        if params or self.modern:
            message["params"] = dict(params or {})
        if self.modern:
            message["params"]["_meta"] = {**META, **message["params"].get("_meta", {})}
        if number is not None:
            message["id"] = number
        self.write(json.dumps(message))

    def receive(self, seconds=20):
        """The next message; None at the end of the output."""
        line = self.messages.get(timeout=seconds)
        if line is None:
            return None
        message = json.loads(line)
        assert message.get("jsonrpc") == "2.0", line
        return message

    def ask(self, method, params=None):
        """The answer; messages before it are dropped."""
        self.last_id += 1
        self.send(method, params, self.last_id)
        while True:
            message = self.receive()
            assert message is not None, f"the output ended: {self.notes}"
            if message.get("id") == self.last_id and "method" not in message:
                return message

    def initialize(self, version="2025-11-25"):
        answer = self.ask("initialize", {"protocolVersion": version, "capabilities": {},
                                         "clientInfo": {"name": "lines", "version": "1"}})
        self.send("notifications/initialized")
        return answer

    def call(self, tool, arguments):
        answer = self.ask("tools/call", {"name": tool, "arguments": arguments})
        assert "result" in answer, answer
        return answer["result"]

    def end(self, seconds=20):
        if not self.process.stdin.closed:
            self.process.stdin.close()
        return self.wait(seconds)

    def wait(self, seconds=20):
        status = self.process.wait(seconds)
        for reader in self.readers:
            reader.join(seconds)
        self.process.stdout.close()
        self.process.stderr.close()
        self.process.stdin.close()
        return status, "".join(self.notes)

    def kill(self):
        self.process.kill()
        return self.wait()
