#!/usr/bin/env python3
"""node_test.py - the Node language kernel, over a socket and pipes; prints TAP.

    tests/kernels/node_test.py [WORD...]     those whose title contains a word
"""
import base64
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kernel import LINE_MAX, NODE, ROOT, Kernel, collect, equal, holds, main  # noqa: E402

kernels = {}


def node():
    if "shared" not in kernels or kernels["shared"].process.poll() is not None:
        kernels["shared"] = Kernel("node")
    return kernels["shared"]


def ok(code):
    done = node().run(code)
    equal(done.status, "ok", f"{code!r}: {done.error}")
    return done


# --- running ---

def test_ready_names_the_language_and_the_protocol():
    with Kernel("node") as k:
        equal({n: k.ready[n] for n in ("event", "language", "protocol")}, {"event": "ready", "language": "node", "protocol": 1})


def test_last_expression_is_the_result():
    with Kernel("node") as k:
        equal(k.run("1 + 1").value, "2")
        equal(k.run("({a: 1})").value, "{ a: 1 }")
        equal(k.run("let x = 1").result, None)
        equal(k.run("undefined").result, None)
        done = k.run("x; 'last'")
        equal((done.value, done.count, done.result["count"]), ("'last'", 5, 5))
        equal(k.run("_").value, "'last'")
        for code, text in (("null", "null"), ("10n ** 20n", "100000000000000000000n"), ("-0", "-0"), ("0 / 0", "NaN"), ("Symbol('s')", "Symbol(s)"), ("[1, [2]]", "[ 1, [ 2 ] ]"), ("new Map([[1, 2]])", "Map(1) { 1 => 2 }")):
            equal(k.run(code).value, text, code)
        equal(k.run("").status, "ok")
        equal(k.run("// nothing").status, "ok")


def test_declarations_persist_and_may_be_repeated():
    for code in ("const c = 1; let l = 2; var v = 3; class K { n() { return 4 } }; function f() { return 5 }",
                 "const c = 1; let l = 2; var v = 3; class K { n() { return 4 } }; function f() { return 5 }"):
        ok(code)
    equal(ok("[c, l, v, new K().n(), f()]").value, "[ 1, 2, 3, 4, 5 ]")
    equal(ok("[] instanceof Array && require('fs').readFileSync('/dev/null') instanceof Uint8Array").value, "true")


def test_top_level_await():
    equal(ok("const slept = await new Promise((r) => setTimeout(r, 20, 'slept')); slept").value, "'slept'")
    equal(ok("slept").value, "'slept'")
    equal(ok("for await (const n of (async function* () { yield 1 })()) console.log(n)").stdout, "1\n")
    equal(ok("Promise.resolve(3)").value, "Promise { 3 }")


def test_require_and_imports_of_every_form():
    with tempfile.TemporaryDirectory() as folder:
        write = lambda name, text: (os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True), open(os.path.join(folder, name), "w", encoding="utf-8").write(text))  # noqa: E731
        write("own.cjs", "exports.n = 1")
        write("own.mjs", "export default 'd'; export const a = 'a', b = 'b';")
        write("node_modules/esm-only/package.json", '{"name": "esm-only", "type": "module", "exports": {"import": "./i.js"}}')
        write("node_modules/esm-only/i.js", "export const only = 'esm'")
        write("node_modules/plain/index.js", "module.exports = {plain: 1}")
        with Kernel("node", cwd=folder) as k:
            for code, text in (
                    ("require('./own.cjs').n + require('plain').plain", "2"),
                    ("import d from './own.mjs'\nd", "'d'"), ("import {a, b as c} from './own.mjs'; a + c", "'ab'"), ("import d2, {a as a2} from './own.mjs'\nd2 + a2", "'da'"),
                    ("import * as ns from './own.mjs';\nObject.keys(ns).join()", "'a,b,default'"), ("import d3, * as n3 from \"./own.mjs\"\nd3 + n3.a", "'da'"),
                    ("import './own.mjs'\n'only run'", "'only run'"), ("import {\n  a as m1, // one\n  b as m2,\n} from './own.mjs'\nm1 + m2", "'ab'"),
                    ("import {only} from 'esm-only'; only", "'esm'"), ("(await import('esm-only')).only", "'esm'"), ("import fs from 'node:fs'; typeof fs.readFileSync", "'function'"),
                    ("async function later() { return (await import('./own.mjs')).a }\nawait later()", "'a'"), ("`${(await import('./own.mjs')).b}`", "'b'"),
                    ("'import x from y' + /import \\/\\(\"/.source.length + `import ${1}`", "'import x from y12import 1'"), ("const o = {import: 1}; o.import", "1"), ("import.meta.url.startsWith('file://')", "true"),
                    ("export const e1 = 5\nexport function e2() { return 6 }\ne1 + e2()", "11"), ("__dirname === process.cwd()", "true"), ("1 / 2 / (await import('./own.mjs')).a.length", "0.5")):
                done = k.run(code)
                equal((done.status, done.value), ("ok", text), f"{code!r} {done.error}")
            equal(k.run("import x from './not-there.mjs'").error["name"], "Error")
            equal(k.run("import {a} from './own.mjs'\n\nnull.x").error["traceback"][0], f"cell-{k.run('0').count - 1}.js:3", "line numbers must not change")


def test_output_arrives_before_later_events():
    with Kernel("node") as k:
        id = k.begin("console.log('first'); process.stdout.write('no newline'); display(1); console.error('err'); await input('?')")
        k.until(lambda e: e["event"] == "display")
        equal(k.text["stdout"], b"first\nno newline")
        k.until(lambda e: e["event"] == "input")
        equal(k.text["stderr"], b"err\n")
        k.send({"op": "input", "id": id, "text": "x"})
        k.end(id)


def test_display_shows_every_form():
    done = ok("display({a: 1}); display.html('<b>'); display.markdown('*'); display.svg('<svg/>'); display.png(Buffer.from([137, 80])); display.json({n: [1, NaN, 2n, 2 ** 65]});\n"
              "display({'text/latex': '$x$'}, {raw: true}); display.jpeg(new Uint8Array([255]).buffer)")
    data = [d["data"] for d in done.displays]
    equal(data[:4], [{"text/plain": "{ a: 1 }"}, {"text/html": "<b>"}, {"text/markdown": "*"}, {"image/svg+xml": "<svg/>"}])
    equal(base64.b64decode(data[4]["image/png"]), b"\x89P")
    equal(data[5]["application/json"], {"n": [1, None, "2", str(2**65)]})
    equal(data[6:], [{"text/latex": "$x$"}, {"image/jpeg": "/w=="}])
    equal(done.result, None, "display() has no value of its own")
    done = ok("({[Symbol.for('Jupyter.display')]() { return {'text/html': '<i>', 'text/plain': 'own'} }})")
    equal(done.data, {"text/html": "<i>", "text/plain": "own"})


# --- errors ---

def test_an_error_has_name_value_and_the_line_of_the_cell():
    error = node().run("function f(o) {\n  return o.x.y\n}\nf({})").error
    equal((error["name"], error["value"]), ("TypeError", "Cannot read properties of undefined (reading 'y')"))
    text = "\n".join(error["traceback"])
    holds("  return o.x.y" in text and ":2:" in text and ":4:" in text, text)
    for code in ("f({})", "await null; f({})", "display(f({}))", "await import('./no')", "let = =", "process.exit()", "setImmediate", "[1].map(() => f({}))"):
        done = node().run(code)
        text = "\n".join(done.error["traceback"]) if done.error else ""
        holds("kernel.mjs" not in text and "inspector" not in text and "runtimes/node" not in text, text)


def test_syntax_errors_point_at_the_place():
    error = node().run("let a1 = 1\nlet b1 = = 2").error
    equal((error["name"], error["traceback"][1:3]), ("SyntaxError", ["let b1 = = 2", "         ^"]))


def test_hostile_errors_cost_only_their_cell():
    for code in ("throw null", "throw undefined", "throw 'text'", "throw {message: 'm', get stack() { throw 1 }}", "throw new Proxy({}, {get() { throw 1 }, has() { throw 2 }})", "throw Object.assign(new Error('x'), {name: {}})",
                 "throw new Error('x'.repeat(5e6))", "throw new Error('\\ud800\\0')", "(function r() { r() })()", "await Promise.reject(new RangeError('r'))", "throw Symbol('s')"):
        done = node().run(code)
        equal(done.status, "error", code)
        holds(done.error is not None, code)
    equal(node().run("throw 'text'").error["value"], "'text'")
    equal(ok("1").value, "1")


def test_exit_is_an_error_and_does_not_end_the_kernel():
    done = node().run("process.exit(3)")
    equal((done.status, done.error["name"], done.error["value"]), ("error", "Exit", "3"))
    equal(ok("1").value, "1")


def test_errors_between_cells_are_written_to_stderr():
    k = node()
    id = k.begin("Promise.reject(new Error('nobody waits')); setTimeout(() => { throw new Error('in a timer') }, 1); await input('?')")
    for words in ("nobody waits", "in a timer"):
        k.wait_output(words, "stderr")
    k.until(lambda e: e["event"] == "input")
    k.send({"op": "input", "id": id, "text": ""})
    equal(k.end(id).status, "ok")


# --- interrupts ---

def test_interrupt_ends_loops_and_awaits():
    for code in ("console.log('go'); while (true) {}", "console.log('go'); for (;;) { try { while (true) {} } finally { } }", "console.log('go'); await new Promise(() => setInterval(() => {}, 1000))",
                 "setTimeout(() => console.log('go'), 50); await new Promise(() => setInterval(() => {}, 1000))", "console.log('go'); await input('?')",
                 "const {execSync} = require('child_process'); console.log('go'); try { execSync('sleep 1') } catch (e) {}\nwhile (true) {}"):
        for _ in range(3):
            done = node().interrupted(code)
            equal((done.status, done.error["name"]), ("interrupted", "Interrupted"), code)
    equal(ok("'goes on'").value, "'goes on'")


def test_interrupt_ends_the_inspection_of_a_value():
    done = node().interrupted("({[require('util').inspect.custom]() { console.log('go'); while (true) {} }})")
    equal(done.status, "interrupted")


def test_an_interrupt_while_idle_is_ignored():
    k = node()
    for _ in range(10):
        k.interrupt()
        holds(k.run("1 + 1").status in ("ok", "interrupted"), "a cell ends")
    equal(k.run("2 + 2").status in ("ok", "interrupted"), True)
    equal(ok("2 + 2").value, "4")


def test_the_signal_handler_is_restored_after_a_cell():
    ok("process.on('SIGINT', () => {}); 0")
    equal(node().interrupted("console.log('go'); while (true) {}").status, "interrupted")


# --- input ---

def test_input_is_answered_by_events():
    k = node()
    for reply, value in (({"text": "zoë"}, "'zoë'"), ({"eof": True}, "null")):
        id = k.begin("await input('name? ', {password: true})")
        event = k.until(lambda e: e["event"] == "input")
        equal((event["prompt"], event["password"]), ("name? ", True))
        k.send({"op": "input", "id": "other", "text": "not mine"})
        k.until(lambda e: e["event"] == "refused")
        k.send({"op": "input", "id": id, **reply})
        equal(k.end(id).value, value)


# --- bounds ---

def test_a_value_larger_than_a_line_is_omitted_and_named():
    done = ok("display({'image/png': Buffer.alloc(2e6), 'text/plain': 'small'}, {raw: true})")
    equal(sorted(done.displays[0]["data"]), ["text/plain"])
    holds("1 MiB" in done.displays[0]["omitted"]["image/png"], done.displays[0]["omitted"])
    for code in ("'x'.repeat(5e6)", "Array(5e6).fill(7)", "'\\u1234'.repeat(3e5)", "Array(900).fill('z'.repeat(1e5))", "({[require('util').inspect.custom]: () => 'y'.repeat(3e6)})"):
        done = ok(code)
        holds(done.value and len(done.value) < LINE_MAX, code)


def test_json_is_strict_for_every_displayed_value():
    done = ok("let deep = []; for (let i = 0; i < 100; i++) deep = [deep]; display.json(deep); display.json({s: '\\ud800\\0', f() {}, u: undefined, d: new Date(0)}); const me = {}; me.me = me; display.json(me)")
    holds("nested" in done.displays[0]["omitted"]["application/json"] and "nested" in done.displays[2]["omitted"]["application/json"], done.displays)
    equal(done.displays[1]["data"]["application/json"], {"s": "\ufffd\ufffd", "d": "1970-01-01T00:00:00.000Z"})


def test_a_value_that_cannot_be_shown_costs_its_text_only():
    for code in ("({[require('util').inspect.custom]() { throw new Error('no') }})", "new Proxy({}, {get() { throw 1 }, ownKeys() { throw 2 }, getPrototypeOf() { throw 3 }})", "({[Symbol.for('Jupyter.display')]() { throw 1 }})",
                 "({get [Symbol.for('Jupyter.display')]() { throw 1 }})", "Object.create(null)", "const loop = []; loop.push(loop); loop"):
        done = node().run(code)
        holds(done.status == "ok" and done.value, (code, done.error))


# --- processes, requests ---

def test_children_do_not_inherit_the_socket():
    equal(ok("require('child_process').execSync('test -S /proc/self/fd/3 && echo there || echo not there').toString()").value, "'not there\\n'")
    equal(ok("require('child_process').spawnSync('sh', ['-c', 'test -S /proc/self/fd/3 && echo there || echo not there'], {stdio: ['ignore', 'pipe', 'inherit']}).stdout.toString()").value, "'not there\\n'")


def test_malformed_lines_are_refused_and_the_kernel_continues():
    k = node()
    for line in (b"x\n", b"\n\n5\n", b"[]\n", b"{}\n", b'{"op":"execute"}\n', b'{"op":"execute","id":""}\n', b'{"op":"execute","id":5,"code":""}\n',
                 b'{"op":"execute","id":"a"}\n', b'{"op":"execute","id":"a","code":5}\n', b'{"op":"fly","id":"a"}\n', b'{"op":"constructor","id":"a"}\n', b'{"id":"a"}\n', b"\xff\xfe\n",
                 b'{"op":"execute","id":"a","code":"","x":' + b"[" * 40 + b"]" * 40 + b"}\n", b'{"op":"complete","id":"a","code":"x","cursor":2}\n',
                 b'{"op":"complete","id":"a","code":"x","cursor":-1}\n', b'{"op":"inspect","id":"a","code":"x","cursor":true}\n', b'{"op":"input","id":"a","text":"t"}\n',
                 b'{"op":"execute","id":"' + b"a" * 65 + b'","code":""}\n', b"y" * (LINE_MAX + 10) + b"\n", b'{"op":"execute","id":"a","code":"1"\n'):
        k.events = []
        k.send(line)
        event = k.until(lambda e: True)
        holds(event["event"] == "refused" and event["why"], (line[:60], event))
    equal(ok("'alive'").value, "'alive'")


def test_completions_come_from_live_names():
    k = node()
    ok("let value_one = 1; const value_two = {key_a: 1, get key_b() { console.log('ran'); return {inner: 1} }}")
    for code, start, wanted in (("value_", 0, ["value_one", "value_two"]), ("x = value_two.key_", 14, ["key_a", "key_b"]), ("value_two.key_b.inn", 16, []), ("whil", 0, ["while"]), ("'a'.toUpperC", None, None),
                                ("require('child_p", 9, ["child_process"]), ("nothing.such", 8, []), ("Math.flo", 5, ["floor"])):
        found = k.complete(code)
        if wanted is not None:
            equal((found["matches"], found["start"], found["end"]), (wanted, start, len(code)), code)
    equal(ok("0").stdout, "", "a getter ran")
    found = k.complete("'\U0001f600' + value_on")
    equal((found["matches"], found["start"], found["end"]), (["value_one"], 6, 14), "the cursor counts characters")


def test_inspection_shows_a_signature():
    ok("function area(width, height = 2) { return width * height }")
    for code, cursor in (("area", 4), ("area(3, ", 8)):
        holds("area(width, height = 2)" in node().inspect(code, cursor)["data"]["text/plain"], code)
    equal(node().inspect("no_such_thing")["found"], False)


def test_reset_forgets_all():
    with Kernel("node") as k, tempfile.TemporaryDirectory() as folder:
        k.run(f"let x = 1; const y = 2; var z = 3; w = 4; function g() {{}}; console = null; process.env.LEFT = '1'; process.chdir({folder!r})")
        equal(k.ask("reset", "finished")["status"], "ok")
        done = k.run(f"console.log('back'); [typeof x, typeof y, typeof z, typeof w, typeof g, process.env.LEFT, process.cwd() === {os.path.realpath(folder)!r}].join()")
        equal((done.value, done.stdout, done.count), ("'undefined,undefined,undefined,undefined,undefined,,false'", "back\n", 1))
        equal(k.run("const y = 5; y").value, "5")


# --- start ---

def test_it_starts_from_its_snapshot():
    with Kernel("node") as k:
        equal(k.ready.get("note"), None)
        equal(k.run("[process.argv.length, process.argv[1].endsWith('kernel.mjs'), process.execArgv.includes('--snapshot-blob')]").value, "[ 2, true, true ]")


def test_a_build_without_changes_does_not_make_the_snapshot_again():
    build = os.path.dirname(os.path.dirname(NODE))
    if not os.path.exists(build + "/build.ninja"):
        return  # the kernel under test is installed
    planned = subprocess.run(["ninja", "-C", build, "-n", "product"], stdout=subprocess.PIPE, check=True).stdout.decode()
    holds("node-snapshot" not in planned, planned)


def test_the_snapshot_is_removed_if_node_has_changed_since():
    check = os.path.join(ROOT, "runtimes/node/check-snapshot")
    with tempfile.TemporaryDirectory() as folder:
        program = folder + "/program"
        shutil.copy(NODE + "/start", program)
        there = os.stat(program)
        for line, kept in ((f"{there.st_size} {there.st_mtime_ns} {program}", True), (f"{there.st_size} {there.st_mtime_ns + 1} {program}", False),
                           (f"1 2 {folder}/none", False)):
            with open(folder + "/kernel.fits", "w", encoding="utf-8") as f:
                f.write(f"made abc\n{line}\n")
            with open(folder + "/kernel.blob", "w", encoding="utf-8") as f:
                f.write("heap")
            subprocess.run([check, folder], check=True)
            equal(os.path.exists(folder + "/kernel.blob"), kept, line)


def test_kernels_of_one_snapshot_share_no_random_number_and_no_environment():
    code = "[Math.random(), require('crypto').randomUUID(), require('crypto').randomBytes(8).toString('hex'), process.pid].join()"
    with tempfile.TemporaryDirectory() as folder, Kernel("node") as a, Kernel("node", cwd=folder, env={"PATH": "/usr/bin:/bin", "OWN": "1"}) as b:
        one, other = (k.run(code).value.strip("'").split(",") for k in (a, b))
        equal([x for x, y in zip(one, other) if x == y], [])
        equal(b.run("process.cwd() + process.env.OWN").value, repr(os.path.realpath(folder) + "1"))
        equal(a.run("process.env.OWN").result, None)


def test_modules_are_found_by_node_path_and_time_by_tz():
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/far.js", "w", encoding="utf-8") as f:
            f.write("module.exports = 'from afar'")
        with Kernel("node", cwd="/", env={"PATH": "/usr/bin:/bin", "NODE_PATH": folder, "TZ": "Asia/Tokyo"}) as k:
            equal(k.run("require('far')").value, "'from afar'")
            equal(k.run("new Date(0).getHours()").value, "9")


def test_an_unusable_snapshot_is_ignored_and_reported():
    with tempfile.TemporaryDirectory() as folder:
        place = shutil.copytree(NODE, folder + "/node")
        for change, why in ((lambda text: text.replace(" ", " 1", 2), "differs"), (lambda _: "none because of a test\n", "because of a test"),
                            (lambda _: "", "no snapshot"), (lambda _: "made by nobody\n", "incomplete")):
            with open(place + "/kernel.fits", encoding="utf-8") as f:
                text = f.read()
            with open(place + "/kernel.fits", "w", encoding="utf-8") as f:
                f.write(change(text))
            with Kernel("node", place=place) as k:
                holds(why in k.ready.get("note", ""), (why, k.ready))
                equal(k.run("[6 * 7, process.argv.length]").value, "[ 42, 2 ]")
            with open(place + "/kernel.fits", "w", encoding="utf-8") as f:
                f.write(text)


def test_options_of_node_disable_the_snapshot_without_a_message():
    with Kernel("node", env={"PATH": "/usr/bin:/bin", "NODE_OPTIONS": "--stack-trace-limit=3"}) as k:
        equal((k.ready.get("note"), k.run("Error.stackTraceLimit").value), (None, "3"))


def test_env_and_cwd_of_a_cell_are_set_for_it_and_restored():
    look = "[process.env.A, process.env.B, process.cwd()].join()"
    with Kernel("node", env={**os.environ, "A": "outer"}) as k:
        before = k.run(look).value
        equal(k.run(look, env={"A": "1", "B": "2"}, cwd="/tmp").value, "'1,2,/tmp'")
        equal(k.run(look).value, before)
        k.run("await 1; process.env.A = 'x'; process.env.C = 'kept'; process.chdir('/')", env={"A": "1", "B": "2"}, cwd="/tmp")
        equal(k.run(look).value, before)
        equal(k.run("process.env.C").value, "'kept'")
        done = k.run("console.log('ran')", cwd="/nowhere", env={"B": "2"})
        equal((done.status, done.stdout), ("error", ""))
        equal(k.run(look).value, before)
        for fields in ({"env": {"A": 1}}, {"env": None}, {"cwd": 1}):
            equal(k.ask("execute", "finished", code="1", **fields)["event"], "refused")


def test_closing_the_socket_ends_the_kernel():
    k = Kernel("node")
    k.run("setInterval(() => {}, 1000); 0")
    k.sock.close()
    equal(k.process.wait(60), 0)


if __name__ == "__main__":
    if not shutil.which("node"):
        print("1..0 # SKIP nodejs is not installed")
        sys.exit(0)
    code = main(collect(globals()))
    for kernel in kernels.values():
        kernel.close()
    sys.exit(code)
