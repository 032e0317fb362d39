"""cove mcp: an MCP client on standard input and output, and a server behind the bridge."""
import glob
import http.server
import json
import os
import signal
import threading
import time
import unittest

from cove import COVE, Case, run, start
from mcp_lines import META, Lines
from nameserver import NameServer
from origins import Origins
from served import OwnServer, Served, wait_for


class Bridged(Served):
    """Clients of a shared server."""

    def bridge(self, *flags, modern=False, **env):
        client = Lines([COVE, "mcp", *flags], {**os.environ, **self.env, **env}, modern)
        self.addCleanup(lambda: client.process.poll() is None and client.kill())
        return client

    def sandboxes(self):
        return [s["id"] for s in self.cove("sandbox", "ls", "--json").json["items"]]


class Sessions(Bridged):
    settings = ["--mcp-idle-timeout", "1s"]

    def test_both_eras_share_the_sandbox_of_the_process_and_the_end_of_input_removes_it(self):
        client = self.bridge()
        self.assertEqual(client.initialize()["result"]["serverInfo"]["name"], "cove")
        result = client.call("bash", {"command": "echo kept > file; echo said"})
        self.assertFalse(result["isError"], result)
        self.assertIn("said", result["content"][0]["text"])
        client.modern = True
        result = client.call("bash", {"command": "cat file"})
        self.assertEqual(result["resultType"], "complete")
        self.assertIn("kept", result["content"][0]["text"])
        self.assertEqual(len(self.sandboxes()), 1)
        self.assertEqual(client.end(), (0, ""))
        wait_for(lambda: self.sandboxes() == [])

    def test_sigterm_ends_calls_and_removes_the_sandbox(self):
        client = self.bridge(modern=True)
        client.call("bash", {"command": "true"})
        client.send("tools/call", {"name": "bash", "arguments": {"command": "sleep 60"}}, 99)
        time.sleep(0.1)
        client.process.send_signal(signal.SIGTERM)
        self.assertEqual(client.wait(), (0, ""))
        wait_for(lambda: self.sandboxes() == [])

    def test_the_session_of_a_killed_bridge_expires(self):
        client = self.bridge()
        client.initialize()
        client.call("bash", {"command": "true"})
        client.kill()
        wait_for(lambda: self.sandboxes() == [], 20)
        self.assertEqual(self.cove("mcp", "sessions", "ls", "--json").json["items"], [])


class Calls(Bridged):
    def test_requests_in_flight_are_answered_as_they_end(self):
        client = self.bridge(modern=True)
        client.call("bash", {"command": "true"})
        client.send("tools/call", {"name": "bash", "arguments": {"command": "sleep 0.5"}}, "slow")
        client.send("tools/call", {"name": "bash", "arguments": {"command": "true"}}, "fast")
        self.assertEqual([client.receive()["id"], client.receive()["id"]], ["fast", "slow"])
        client.end()

    def test_a_cancelled_call_is_killed_and_not_answered(self):
        for modern in (True, False):
            with self.subTest(modern=modern):
                client = self.bridge(modern=modern)
                if not modern:
                    client.initialize()
                client.call("bash", {"command": "true"})
                client.send("tools/call", {"name": "bash", "arguments": {"command": "sleep 61"}}, 99)
                check = {"command": "pgrep -f '^sleep 61' | wc -l"}
                wait_for(lambda: "1" in client.call("bash", check)["structuredContent"]["stdout"])
                client.send("notifications/cancelled", {"requestId": 99})
                wait_for(lambda: "0" in client.call("bash", check)["structuredContent"]["stdout"])
                client.process.stdin.close()
                self.assertIsNone(client.receive())
                client.end()

    def test_input_that_is_not_a_message_gets_an_error_and_the_next_message_an_answer(self):
        client = self.bridge(modern=True)
        for line, code, number in ((b"garbage\n", -32700, None), (b"[]\n", -32600, None), (b'{"id": 7}\n', -32600, 7),
                                   (b"{" + b" " * (8 << 20) + b"}\n", -32700, None),
                                   (b'{"jsonrpc":"2.0","id":[],"method":"a"}\n', -32600, None)):
            client.write(line)
            answer = client.receive()
            self.assertEqual((answer["id"], answer["error"]["code"]), (number, code), line[:40])
        client.write(b"\r\n\n")
        self.assertIn("tools", client.ask("tools/list")["result"])
        client.end()

    def test_a_file_of_requests_is_answered_to_its_end(self):
        lines = [{"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {},
                                                              "clientInfo": {"name": "file", "version": "1"}}},
                 {"method": "notifications/initialized"},
                 {"id": 2, "method": "tools/call", "params": {"name": "bash", "arguments": {"command": "echo $((6*7))"}}}]
        path = os.path.join(self.dir, "requests")
        with open(path, "w", encoding="utf-8") as f:
            f.write("\n".join(json.dumps({"jsonrpc": "2.0", **line}) for line in lines))
        with open(path, "rb") as f:
            done = run("mcp", env=self.env, stdin=f.read())
        first, second = map(json.loads, done.out.splitlines())
        self.assertEqual(first["result"]["protocolVersion"], "2025-06-18")
        self.assertEqual(second["result"]["structuredContent"]["stdout"], "42\n")

    def test_a_session_may_use_a_sandbox_that_exists_or_a_template(self):
        sandbox = self.cove("sandbox", "create", "--json").json["id"]
        client = self.bridge("--sandbox", sandbox[:12])
        client.initialize()
        self.assertEqual(client.call("bash", {"command": "true"})["structuredContent"]["sandboxId"], sandbox)
        client.end()
        self.assertEqual(self.sandboxes(), [sandbox])  # it is not the session's own
        client = self.bridge("--template", "missing", modern=True)
        self.assertIn("missing", client.ask("tools/list")["error"]["message"])
        client.end()
        self.assertErrorCode(self.cove("mcp", "--local", "--sandbox", sandbox, code=2), 2, "bad_usage")

    def test_a_token_for_one_sandbox_gives_the_client_that_sandbox(self):
        sandbox = self.cove("sandbox", "create", "--json").json["id"]
        token = self.cove("token", "create", "-q", sandbox).out.strip()
        for modern in (True, False):
            client = self.bridge(modern=modern, COVE_API_KEY=token)
            if not modern:
                client.initialize()
            self.assertEqual(client.call("bash", {"command": "true"})["structuredContent"]["sandboxId"], sandbox)
            self.assertEqual(client.end(), (0, ""))
        self.assertEqual(self.sandboxes(), [sandbox])
        self.assertEqual(self.cove("mcp", "sessions", "ls", "--json").json["items"], [])

    def test_a_slow_reader_gets_every_answer_after_the_end_of_the_input(self):
        call = {"name": "bash", "arguments": {"command": "head -c 400000 /dev/zero | tr '\\0' x"}, "_meta": META}
        lines = [json.dumps({"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": call}) for n in range(30)]
        process = start("mcp", env=self.env)
        process.stdin.write("\n".join(lines).encode())
        process.stdin.close()
        time.sleep(0.3)  # the pipe is full
        answers = [json.loads(line) for line in process.stdout.read().splitlines()]
        self.assertEqual((process.wait(20), sorted(a["id"] for a in answers)), (0, list(range(30))))
        self.assertEqual([a for a in answers if a["result"]["isError"]], [])
        self.assertGreater(min(len(a["result"]["structuredContent"]["stdout"]) for a in answers), 10000)
        process.stdout.close()
        process.stderr.close()

    def test_sessions_are_listed_shown_and_closed(self):
        client = self.bridge()
        client.initialize()
        client.call("bash", {"command": "true"})
        items = self.cove("mcp", "sessions", "ls", "--json").json["items"]
        self.assertEqual([(s["kind"], s["clientName"], s["sandboxId"]) for s in items], [("bridge", "lines", self.sandboxes()[0])])
        self.assertIn(items[0]["id"], self.cove("mcp", "sessions", "ls").out)
        self.assertEqual(self.cove("__complete", "mcp", "sessions", "show", "").out.split(), [items[0]["id"]])
        self.assertEqual(self.cove("mcp", "sessions", "show", items[0]["id"]).json["id"], items[0]["id"])
        self.assertEqual(self.cove("mcp", "sessions", "rm", items[0]["id"]).out.split(), [items[0]["id"]])
        wait_for(lambda: self.sandboxes() == [])
        self.assertFalse(client.call("bash", {"command": "true"})["isError"])  # the bridge opens another session
        client.end()
        self.assertErrorCode(self.cove("mcp", "sessions", "rm", items[0]["id"], code=125), 125, "not_found")

    def test_a_wrong_key_is_reported_in_the_answer(self):
        client = self.bridge(COVE_API_KEY="cove_" + "0" * 40)
        answer = client.initialize()
        self.assertEqual(answer["error"]["data"], {"code": "unauthorized", "status": 401})
        client.end()


class Restart(OwnServer):
    def test_a_killed_server_is_followed_by_a_new_session_without_notice(self):
        client = Lines([COVE, "mcp"], dict(os.environ, **self.env))
        client.initialize()
        client.call("bash", {"command": "true"})
        os.kill(self.launched.processes()["coved"], signal.SIGKILL)
        wait_for(lambda: "result" in client.ask("ping"))
        wait_for(lambda: not client.call("bash", {"command": "true"})["isError"])  # an error while sandboxes are adopted
        client.modern = True
        self.assertFalse(client.call("bash", {"command": "true"})["isError"])
        self.launched.stop()
        answer = client.ask("tools/list")
        self.assertEqual(answer["error"]["data"]["code"], "server_unreachable")
        self.assertIn("cove serve", answer["error"]["message"])
        client.end()

    def tearDown(self):
        self.launched.kill()
        Case.tearDown(self)


class Local(Case):
    def start(self, *flags, variables=None, **options):
        self.temporary = os.path.join(self.dir, "t")
        os.makedirs(self.temporary, exist_ok=True)
        os.chmod(self.dir, 0o755)
        os.chmod(self.temporary, 0o777)
        env = dict(os.environ, TMPDIR=self.temporary, COVE_URL="http://127.0.0.1:1", COVE_API_KEY="cove_wrong", **(variables or {}))
        return Lines([COVE, "mcp", "--local", *flags], env, True, **options)

    def test_the_sandboxes_of_a_private_server_reach_the_hosts_of_allow_only(self):
        with Origins(self.dir, ["origin.test"]) as there, NameServer({"origin.test": [there.address]}) as resolver:
            client = self.start("--deny", "origin.test:443", "--allow", "origin.test",
                                variables={"COVE_EGRESS_RESOLVERS": resolver.address, "COVE_EGRESS_OPEN_RANGES": there.address + "/32"})
            said = client.call("bash", {"command": "curl -sS http://origin.test/; curl -sS http://other.test/; curl -sS https://origin.test/"})
        text = said["content"][0]["text"]
        self.assertIn("hello from origin.test", text)
        self.assertIn("other.test:80: no rule allows it", text)
        self.assertIn("denied by a rule: deny origin.test:443", text)
        refused = client.call("create_sandbox", {"network": {"allow": ["origin.test"]}})
        self.assertIn("network: a tool does not choose it", json.dumps(refused))
        self.assertEqual(client.end(60)[0], 0)

    def test_a_network_of_the_bridge_needs_a_private_server(self):
        done = run("mcp", "--allow", "origin.test")
        self.assertErrorCode(done, 2, "bad_usage")
        self.assertIn("cove template set --allow HOST NAME", done.err)

    def left(self):
        return glob.glob(self.temporary + "/*")

    def test_a_private_server_ends_with_its_client(self):
        client = self.start()
        self.assertIn("42", client.call("bash", {"command": "echo $((6 * 7))"})["content"][0]["text"])
        self.assertEqual(len(self.left()), 1)
        self.assertEqual(client.end(60), (0, ""))
        self.assertEqual(self.left(), [])

    def test_no_server_outlives_a_killed_client_and_the_next_one_removes_its_directory(self):
        client = self.start()
        client.ask("tools/list")
        directory = self.left()[0]
        client.kill()
        wait_for(lambda: not [p for p in glob.glob("/proc/[0-9]*/cmdline") if self.mentions(p, directory)], 60)
        os.utime(directory, (1, 1))
        client = self.start()
        client.ask("tools/list")
        self.assertNotIn(directory, self.left())
        client.end(60)

    @staticmethod
    def mentions(path, word):
        try:
            with open(path, "rb") as f:
                return word.encode() in f.read()
        except OSError:
            return False

    @unittest.skipUnless(os.geteuid() == 0, "needs root to become another user")
    def test_a_plain_user_gets_a_private_server(self):
        client = self.start(user=65534, group=65534, extra_groups=[])
        answer = client.ask("tools/call", {"name": "bash", "arguments": {"command": "id -u"}})
        if "no_namespaces" in json.dumps(answer):
            self.skipTest("plain users cannot create user namespaces on this host")
        self.assertEqual(answer["result"]["structuredContent"]["stdout"], "1000\n")
        client.end(60)
        self.assertEqual(self.left(), [])


class Foreign(Case):
    """A server of others, as a script: what it sends and records is up to the test."""

    def setUp(self):
        super().setUp()
        test = self
        self.posts, self.gets, self.handlers = [], [], {}

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, message, status=200, **headers):
                body = json.dumps(message).encode() if message is not None else b""
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def stream(self, *events):
                """Closes the connection after the events."""
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                for event in events:
                    self.wfile.write(event.encode())
                self.close_connection = True

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
                test.posts.append((self.path, dict(self.headers), body))
                handler = test.handlers.get(body.get("method"))
                if self.path != "/mcp":
                    self.answer(None, 404)
                elif handler:
                    handler(self, body)
                else:
                    self.answer(None, 202)

            def do_GET(self):
                test.gets.append(dict(self.headers))
                if "GET" in test.handlers:
                    test.handlers["GET"](self, None)
                else:
                    self.answer(None, 405)

            def do_DELETE(self):
                test.posts.append((self.path, dict(self.headers), "DELETE"))
                self.answer(None, 200)

        self.handlers["initialize"] = lambda h, m: h.answer(
            {"jsonrpc": "2.0", "id": m["id"], "result": {"protocolVersion": "2025-11-25", "capabilities": {},
                                                        "serverInfo": {"name": "script", "version": "1"}}},
            Mcp_Session_Id="first")
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.handle_error = lambda *_: None  # the bridge may close a connection at any time
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.client = Lines([COVE, "mcp", "--url", f"http://127.0.0.1:{server.server_port}/mcp"])
        self.addCleanup(lambda: self.client.process.poll() is None and self.client.kill())

    def sent(self, method):
        return [headers for _, headers, body in self.posts if body != "DELETE" and body.get("method") == method]

    @staticmethod
    def event(number, **message):
        return f"id: {number}\ndata: {json.dumps({'jsonrpc': '2.0', **message})}\n\n"

    def test_the_session_of_the_protocol_is_kept_and_closed(self):
        self.handlers["tools/list"] = lambda h, m: h.answer({"jsonrpc": "2.0", "id": m["id"], "result": {"tools": []}})
        self.client.initialize()
        self.client.ask("tools/list")
        headers = self.sent("tools/list")[0]
        self.assertEqual((headers["Mcp-Session-Id"], headers["MCP-Protocol-Version"]), ("first", "2025-11-25"))
        self.assertNotIn("Mcp-Session-Id", self.sent("initialize")[0])
        wait_for(lambda: self.gets)
        self.assertEqual(self.client.end(), (0, ""))
        self.assertEqual([(p, h["Mcp-Session-Id"]) for p, h, body in self.posts if body == "DELETE"], [("/mcp", "first")])

    def test_events_are_forwarded_in_order_and_a_stream_that_was_closed_is_resumed(self):
        self.handlers["tools/call"] = lambda h, m: h.stream(
            "id: 0\nretry: 10\ndata:\n\n", self.event(1, method="notifications/progress", params={"progress": 1}))
        self.client.initialize()
        wait_for(lambda: self.gets)  # the stream of the session was refused
        self.handlers["GET"] = lambda h, m: h.stream(
            self.event(2, method="notifications/progress", params={"progress": 2}), self.event(3, id="c", result={"ok": True}))
        self.client.send("tools/call", {"name": "x"}, "c")
        self.assertEqual([self.client.receive().get("params", {}).get("progress") for _ in range(3)], [1, 2, None])
        self.assertEqual(self.gets[-1]["Last-Event-ID"], "1")
        self.assertEqual(len(self.sent("tools/call")), 1)
        self.client.end()

    def test_a_call_whose_connection_breaks_is_not_repeated(self):
        def break_off(handler, _):
            handler.close_connection = True

        self.client.initialize()
        self.handlers["tools/call"] = self.handlers["tools/list"] = break_off
        answer = self.client.ask("tools/call", {"name": "x"})
        self.assertEqual(answer["error"]["data"]["code"], "connection_lost")
        self.assertIn("may have been carried out", answer["error"]["message"])
        self.assertEqual(len(self.sent("tools/call")), 1)
        self.assertIn("error", self.client.ask("tools/list"))
        self.assertEqual(len(self.sent("tools/list")), 2)  # reading is repeated
        self.client.end()

    def test_a_lost_session_is_initialized_again_and_the_request_repeated(self):
        def call(handler, message):
            if handler.headers["Mcp-Session-Id"] == "first":
                handler.answer(None, 404)
            else:
                handler.answer({"jsonrpc": "2.0", "id": message["id"], "result": {"n": 1}})

        self.client.initialize()
        first = self.handlers["initialize"]
        self.handlers["tools/call"] = call
        self.handlers["initialize"] = lambda h, m: (setattr(h, "send_header", self.rename(h)), first(h, m))
        self.assertEqual(self.client.call("x", {}), {"n": 1})
        self.assertEqual(len(self.sent("initialize")), 2)
        self.assertEqual(self.sent("notifications/initialized")[1]["Mcp-Session-Id"], "second")
        self.client.end()

    @staticmethod
    def rename(handler):
        send = handler.send_header
        return lambda name, value: send(name, "second" if name == "Mcp-Session-Id" else value)

    def test_parameters_are_repeated_in_headers_when_their_tool_wants_it(self):
        schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
        self.handlers["tools/list"] = lambda h, m: h.answer(
            {"jsonrpc": "2.0", "id": m["id"], "result": {"resultType": "complete", "tools": [{"name": "t", "inputSchema": schema}]}})
        self.handlers["tools/call"] = lambda h, m: h.answer({"jsonrpc": "2.0", "id": m["id"], "result": {}})
        self.client.modern = True
        self.client.ask("tools/list")
        self.client.call("t", {"region": "\u00e9u"})
        headers = self.sent("tools/call")[0]
        self.assertEqual([headers[n] for n in ("Mcp-Method", "Mcp-Name", "Mcp-Param-Region", "MCP-Protocol-Version")],
                         ["tools/call", "t", "=?base64?w6l1?=", META["io.modelcontextprotocol/protocolVersion"]])
        self.client.end()

    def test_an_error_without_an_id_is_the_answer_to_its_request(self):
        self.handlers["tools/call"] = lambda h, m: h.answer(
            {"jsonrpc": "2.0", "id": None, "error": {"code": -32020, "message": "header", "data": {"x": 1}}}, 400)
        self.client.modern = True
        answer = self.client.ask("tools/call", {"name": "x"})
        self.assertEqual(answer["error"], {"code": -32020, "message": "header", "data": {"x": 1}})
        self.client.end()

    def test_only_messages_reach_the_output(self):
        self.handlers["tools/call"] = lambda h, m: h.stream(
            "data: not json\n\n", "data: {\"id\": 1}\n\n", self.event(1, id=12345, result={}),
            "data: {\"jsonrpc\":\"2.0\",\n" + f"data: \"id\":{m['id']},\"result\":{{}}}}\n\n")
        self.client.modern = True
        self.assertEqual(self.client.call("x", {}), {})
        status, notes = self.client.end()
        self.assertEqual((status, notes.count("not valid"), notes.count("another request")), (0, 2, 1))


class Configuration(Case):
    def test_the_configuration_of_each_client_starts_this_program_with_the_same_flags(self):
        for name, key in (("claude-code", "mcpServers"), ("cursor", "mcpServers"), ("vscode", "servers")):
            done = run("mcp", "config", name, "--local", "--template", "x")
            server = done.json[key]["cove"]
            self.assertEqual((server["type"], server["args"]), ("stdio", ["mcp", "--local", "--template", "x"]))
            self.assertTrue(os.access(server["command"], os.X_OK))
            self.assertIn("mcp.json", done.err)
        done = run("mcp", "config", "cursor", "--local", "--deny", "a.example", "--allow", "*.example")
        self.assertEqual(done.json["mcpServers"]["cove"]["args"], ["mcp", "--local", "--deny", "a.example", "--allow", "*.example"])
        self.assertErrorCode(run("mcp", "config", "emacs"), 2, "bad_usage")
        self.assertErrorCode(run("mcp", "session"), 2, "bad_usage")
