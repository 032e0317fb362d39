#!/usr/bin/env python3
"""python_test.py - the Python language kernel, over a socket and pipes; prints TAP.

    tests/kernels/python_test.py [WORD...]     those whose title contains a word
"""
import base64
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kernel import Broken, LINE_MAX, PYTHON, ROOT, Kernel, collect, equal, holds, main  # noqa: E402

kernels = {}


def python():
    """One kernel that is shared by the cases that leave it unchanged."""
    if "shared" not in kernels or kernels["shared"].process.poll() is not None:
        kernels["shared"] = Kernel("python")
    return kernels["shared"]


def ok(code):
    done = python().run(code)
    equal(done.status, "ok", f"{code!r}: {done.error}")
    return done


# --- env and cwd of one cell ---

def test_env_and_cwd_of_a_cell_are_set_for_it_and_restored():
    look = "import os; (os.environ.get('A'), os.environ.get('B'), os.getcwd())"
    for language in ("python", "python-member"):
        with Kernel(language, env={**os.environ, "A": "outer"}) as k:
            before = k.run(look).value
            equal(k.run(look, env={"A": "1", "B": "'two' \n"}, cwd="/tmp").value, repr(("1", "'two' \n", "/tmp")))
            equal(k.run(look).value, before)
            k.run("os.environ['A'] = 'x'; os.environ['C'] = 'kept'; os.chdir('/')", env={"A": "1", "B": "2"}, cwd="/tmp")
            equal(k.run(look).value, before)
            equal(k.run("os.environ['C']").value, "'kept'")
            equal(k.run("os.environ['A'], os.environ['B'], 1/0", env={"A": "1", "B": "2"}, cwd="/tmp").error["name"], "ZeroDivisionError")
            equal(k.run(look).value, before)


def test_a_cwd_that_does_not_exist_is_an_exception_of_the_cell():
    with Kernel("python") as k:
        done = k.run("print('ran')", cwd="/nowhere", env={"A": "1"})
        equal((done.status, done.error["name"], done.stdout), ("error", "FileNotFoundError", ""))
        equal(k.run("import os; os.environ.get('A')").value, None)


def test_env_of_an_interrupted_cell_is_restored():
    with Kernel("python") as k:
        id = k.begin("import time; print('go', flush=True); time.sleep(100)", env={"A": "1"}, cwd="/tmp")
        k.until(lambda e: k.text["stdout"] or e["event"] == "started")
        while b"go" not in k.text["stdout"]:
            k.pump(1)
        k.interrupt()
        equal(k.end(id).status, "interrupted")
        equal(k.run("import os; os.environ.get('A'), os.getcwd()").value, repr((None, os.getcwd())))


def test_env_and_cwd_of_a_wrong_kind_are_refused():
    with Kernel("python") as k:
        for fields in ({"env": {"A": 1}}, {"env": []}, {"cwd": 1}):
            equal(k.ask("execute", "finished", code="1", **fields)["event"], "refused")
        equal(k.run("1").value, "1")


# --- running ---

def test_ready_names_the_language_and_the_protocol():
    with Kernel("python") as k:
        equal({n: k.ready[n] for n in ("event", "language", "protocol")}, {"event": "ready", "language": "python", "protocol": 1})
        holds(k.ready["version"].startswith("3."), k.ready)


def test_early_requests_are_answered_in_order_after_ready():
    lines = [b'{"op":"execute","id":"a","code":"x = 1"}', b'{"op":"later?","id":"b"}', b'{"op":"execute","id":"c","code":"x + 1"}']
    for language in ("python", "python-member"):
        with Kernel(language, early=b"\n".join(lines) + b"\n") as k:
            k.until(lambda e: e["event"] == "finished" and e["id"] == "c")
            equal([(e["event"], e.get("id")) for e in k.events],
                  [("ready", None), ("started", "a"), ("finished", "a"), ("refused", "b"), ("started", "c"), ("result", "c"), ("finished", "c")])


def test_ready_is_sent_without_a_request():
    with Kernel("python", early=b"\n") as k:
        k.sock.shutdown(1)
        equal((k.ready["event"], k.process.wait(120)), ("ready", 0))


def test_code_that_looks_like_a_single_call_is_parsed_as_python_parses_it():
    with Kernel("python") as k:
        k.run("def f(*a): return a\nd = {(1,): 0}")
        equal(k.run("f(1)").value, "(1,)")
        equal(k.run("f(1) + f(2) # a comment (of a kind)").value, "(1, 2)")
        equal(k.run("f(1) and (y := 3)").value, "3")
        equal(k.run("d[(1,)] = y").status, "ok")
        equal(k.run("d.__getitem__(f(1))").value, "3")
        equal((k.run("d[f(1)]").value, k.run("del(y)").status, k.run("assert(d)").status), ("3", "ok", "ok"))
        equal(k.run("f(d)[0][f(1)] = (4)").status, "ok")
        equal((k.run("d[f(1)]").value, k.run("f(1);").result), ("4", None))
        done = k.run("f(1) f(2)")
        equal((done.status, done.error["name"]), ("error", "SyntaxError"))
        holds("covekernel" not in "".join(done.error["traceback"]), done.error)


def test_last_expression_is_the_result_and_variables_persist():
    with Kernel("python") as k:
        equal(k.run("x = 20").result, None)
        done = k.run("x += 1\nx * 2")
        equal((done.value, done.result["count"], done.count), ("42", 2, 2))
        equal(k.run("_ + 1").value, "43")
        equal(k.run("None").result, None)
        equal(k.run("x;").result, None, "a semicolon suppresses the result")
        equal(k.run("x; # said nothing").result, None)
        equal(k.run("for i in range(3): i").result, None)
        equal(k.run("").status, "ok")
        equal(k.run("# only a comment").status, "ok")


def test_a_cell_sees_itself_as_main():
    equal(ok("import sys\n__name__, sys.modules['__main__'].__dict__ is globals(), sys.argv, sys.path[0]").value, "('__main__', True, [''], '')")
    equal(ok("import pickle\nclass P: pass\ntype(pickle.loads(pickle.dumps(P()))).__name__").value, "'P'")
    holds("def shown():" in ok("import inspect\ndef shown():\n    return 1\ninspect.getsource(shown)").value, "source of a function of a cell")


def test_output_arrives_before_later_events():
    with Kernel("python") as k:
        id = k.begin("import time, sys\nprint('first')\nsys.stdout.write('no newline')\ndisplay(1)\nsys.stderr.write('err')\ninput('?')")
        k.until(lambda e: e["event"] == "display")
        equal(k.text["stdout"], b"first\nno newline")
        k.until(lambda e: e["event"] == "input")
        equal(k.text["stderr"], b"err")
        k.send({"op": "input", "id": id, "text": ""})
        k.end(id)


def test_children_write_to_the_same_pipes():
    done = ok("import subprocess\nprint('a')\nsubprocess.run(['sh', '-c', 'echo b; echo c >&2'])\nprint('d', end='')")
    equal((done.stdout, done.stderr), ("a\nb\nd", "c\n"))


def test_display_shows_several_values_and_raw_data():
    done = ok("class H:\n    def _repr_html_(self): return '<b>'\ndisplay(1, H())\ndisplay({'text/plain': 'p', 'text/latex': '$x$'}, raw=True)\n5")
    equal([sorted(d["data"]) for d in done.displays], [["text/plain"], ["text/html", "text/plain"], ["text/latex", "text/plain"]])
    equal(done.value, "5")


def test_top_level_await():
    equal(ok("import asyncio\nawait asyncio.sleep(0.01)\nx = await asyncio.sleep(0, 'slept')\nx").value, "'slept'")
    equal(ok("await asyncio.gather(asyncio.sleep(0, 1), asyncio.sleep(0, 2))").value, "[1, 2]")
    equal(ok("async def agen():\n    yield 1\n[i async for i in agen()]").value, "[1]")
    equal(ok("asyncio.run(asyncio.sleep(0, 'own loop'))").value, "'own loop'")
    equal(ok("await asyncio.sleep(0, 'and after it')").value, "'and after it'")


# --- errors ---

def test_an_error_has_name_value_and_the_lines_of_the_cell():
    error = python().run("def f(n):\n    return 1 / n\n\nf(0)").error
    equal((error["name"], error["value"]), ("ZeroDivisionError", "division by zero"))
    text = "\n".join(error["traceback"])
    holds("    return 1 / n" in text and "    f(0)" in text and "line 4" in text, text)
    equal(error["traceback"][0], "Traceback (most recent call last):")


def test_tracebacks_have_no_frame_of_the_kernel():
    for code in ("1/0", "import asyncio\nawait asyncio.sleep('x')", "display(input(1/0))", "try:\n    1/0\nexcept Exception:\n    raise ValueError('again')",
                 "raise ExceptionGroup('g', [ValueError(1)])", "def r(): r()\nr()", "exec(compile('1/0', 'other.py', 'exec'))"):
        text = "\n".join(python().run(code).error["traceback"])
        holds("covekernel" not in text and "kernel.py" not in text, text)


def test_syntax_errors_point_at_the_place():
    error = python().run("x = 1\ny = = 2").error
    equal(error["name"], "SyntaxError")
    holds(any(line.strip().startswith("^") for line in error["traceback"]) and "y = = 2" in "\n".join(error["traceback"]), error)
    equal(python().run("  x = 1").error["name"], "IndentationError")
    equal(python().run("a\0b").status, "error")
    equal(python().run("\ud800").status, "error")


def test_exit_is_an_error_and_does_not_end_the_kernel():
    for code, value in (("import sys; sys.exit(3)", "3"), ("exit()", "None"), ("raise SystemExit", ""), ("quit(0)", "0")):
        done = python().run(code)
        equal((done.status, done.error["name"]), ("error", "SystemExit"), code)
        if value != "None":
            equal(done.error["value"], value, code)
    equal(ok("1").value, "1")


def test_hostile_errors_cost_only_their_cell():
    for code in ("class E(Exception):\n    def __str__(self): raise ValueError\nraise E", "raise type('E', (Exception,), {'__str__': lambda s: 1})",
                 "class E(BaseException):\n    __name__ = property(lambda s: 1/0)\nraise E('x')", "raise ValueError('x' * 5_000_000)",
                 "raise ValueError('\\ud800\\0')", "def r(n): return r(n + 1)\nr(0)", "e = ValueError()\ne.__cause__ = e\nraise e"):
        done = python().run(code)
        equal(done.status, "error", code)
        holds(done.error is not None, code)
    equal(ok("1").value, "1")


# --- interrupts ---

def test_interrupt_ends_loops_sleeps_and_awaits():
    for code in ("while True: pass", "import time; time.sleep(1000)", "import asyncio; await asyncio.sleep(1000)",
                 "import subprocess; subprocess.run(['sleep', '1000'])", "import threading; threading.Event().wait()",
                 "async def f():\n    while True: pass\nawait f()"):
        done = python().interrupted("print('go')\n" + code)
        equal((done.status, done.error["name"]), ("interrupted", "KeyboardInterrupt"), code)
    equal(ok("'goes on'").value, "'goes on'")


def test_interrupt_inside_a_loop_of_c_works_or_the_kernel_must_be_killed():
    """A loop in C may or may not check for signals. A loop without the check answers nothing until
    it is killed."""
    for code in ("import re; re.match(r'(a+)+$', 'a' * 64 + 'b')", "sum(range(10**12))", "n = 10**9; 7 ** n"):
        with Kernel("python") as k:
            k.run("x = 1")
            id = k.begin("print('go')\n" + code)
            k.wait_output("go")
            k.interrupt()
            try:
                k.until(lambda e: e["event"] == "finished", 3)  # as long as the server waits
            except Broken as silence:
                holds("nothing within" in str(silence), silence)
                equal([e["event"] for e in k.events], ["started"], code)
                k.process.kill()
                equal(k.process.wait(60), -9)
                continue
            done = k.end(id)
            equal((done.status, done.error["name"], done.value), ("interrupted", "KeyboardInterrupt", None), code)
            equal(k.run("x").value, "1")


def test_interrupt_runs_finally_of_an_awaiting_cell():
    done = python().interrupted("import asyncio\ntry:\n    asyncio.get_running_loop().call_soon(print, 'go')  # once the cell awaits\n    await asyncio.sleep(1000)\nfinally:\n    print('left')")
    equal((done.status, done.stdout), ("interrupted", "go\nleft\n"))
    holds("await asyncio.sleep(1000)" in "\n".join(done.error["traceback"]), done.error)


def test_interrupt_ends_a_blocked_input():
    k = python()
    id = k.begin("input('name? ')")
    k.until(lambda e: e["event"] == "input")
    k.interrupt()
    done = k.end(id)
    equal((done.status, done.error["name"]), ("interrupted", "KeyboardInterrupt"))
    late = k.ask("input", "refused", text="late")
    equal(late["event"], "refused")


def test_interrupt_ends_a_repr():
    done = python().interrupted("class R:\n    def __repr__(self):\n        print('go')\n        while True: pass\nR()")
    equal(done.status, "interrupted")


def test_a_caught_interrupt_can_be_repeated():
    k = python()
    id = k.begin("import time\ntry:\n    print('go')\n    time.sleep(1000)\nexcept KeyboardInterrupt:\n    print('again')\n    time.sleep(1000)")
    for mark in ("go", "again"):
        k.wait_output(mark)
        k.interrupt()
    equal(k.end(id).status, "interrupted")
    done = python().interrupted("try:\n    print('go')\n    time.sleep(1000)\nexcept KeyboardInterrupt:\n    pass\n'caught'")
    equal((done.status, done.value), ("ok", "'caught'"))


def test_an_interrupt_while_idle_is_ignored():
    k = python()
    for _ in range(20):
        k.interrupt()
        equal(k.run("1 + 1").status in ("ok", "interrupted"), True)
    equal(ok("2 + 2").value, "4")


def test_a_storm_of_interrupts_breaks_no_line():
    k = python()
    for _ in range(15):
        id = k.begin("print('go')\nfor i in range(10**9): display(i)")
        k.wait_output("go")
        k.interrupt()
        equal(k.end(id).status, "interrupted")


def test_the_signal_handler_is_restored_after_a_cell():
    ok("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)")
    equal(python().interrupted("print('go')\nwhile True: pass").status, "interrupted")


# --- input ---

def answer(k, code, *answers):
    id = k.begin(code)
    seen = []
    for reply in answers:
        seen.append(k.until(lambda e: e["event"] == "input"))
        k.events = [e for e in k.events if e["event"] != "input"]
        k.send({"op": "input", "id": id, **({"eof": True} if reply is None else {"text": reply})})
    return k.end(id), seen


def test_input_is_answered_by_events():
    k = python()
    done, seen = answer(k, "a = input('name? ')\na.upper()", "zoë")
    equal((done.value, seen[0]["prompt"], seen[0]["password"]), ("'ZOË'", "name? ", False))
    done, seen = answer(k, "import getpass\ngetpass.getpass('secret: ')", "s3")
    equal((done.value, seen[0]["password"]), ("'s3'", True))
    done, _ = answer(k, "import sys\n[line for line in sys.stdin]", "one", "two", None)
    equal(done.value, "['one\\n', 'two\\n']")


def test_end_of_input_is_an_eoferror():
    done, _ = answer(python(), "input()", None)
    equal(done.error["name"], "EOFError")


def test_requests_during_an_input_request_are_queued():
    k = python()
    id = k.begin("input()")
    k.until(lambda e: e["event"] == "input")
    k.send({"op": "complete", "id": "c", "code": "prin", "cursor": 4})
    k.send({"op": "input", "id": "other", "text": "not mine"})
    k.until(lambda e: e["event"] == "refused" and e["id"] == "other")
    k.send({"op": "input", "id": id, "text": "mine"})
    equal(k.end(id).value, "'mine'")
    holds("print" in k.until(lambda e: e["event"] == "completions")["matches"], "the completion must arrive after the cell")


# --- rich results ---

def test_every_mime_type_of_an_object_is_sent():
    done = ok("""
class Rich:
    def _repr_html_(self): return '<b>h</b>'
    def _repr_markdown_(self): return '*m*'
    def _repr_svg_(self): return '<svg/>'
    def _repr_png_(self): return b'\\x89PNG'
    def _repr_jpeg_(self): return b'\\xff\\xd8', {'width': 3}
    def _repr_pdf_(self): return b'%PDF'
    def _repr_latex_(self): return '$l$'
    def _repr_json_(self): return {'a': [1, None]}
    def _repr_javascript_(self): return 'alert(1)'
    def __repr__(self): return 'plain'
Rich()""")
    data = done.data
    equal(data["text/html"] + data["text/markdown"] + data["image/svg+xml"] + data["text/latex"], "<b>h</b>*m*<svg/>$l$")
    equal([base64.b64decode(data[m]) for m in ("image/png", "image/jpeg", "application/pdf")], [b"\x89PNG", b"\xff\xd8", b"%PDF"])
    equal((data["application/json"], data["application/javascript"], data["text/plain"]), ({"a": [1, None]}, "alert(1)", "plain"))
    equal(done.result["meta"], {"image/jpeg": {"width": 3}})


def test_a_mimebundle_takes_precedence_over_the_methods():
    done = ok("class B:\n    def _repr_mimebundle_(self, include=None, exclude=None): return {'text/html': 'bundle', 'application/x-own': 'o'}, {'text/html': {'i': True}}\n"
              "    def _repr_html_(self): return 'method'\nB()")
    equal((done.data["text/html"], done.data["application/x-own"], done.result["meta"]), ("bundle", "o", {"text/html": {"i": True}}))


def test_a_repr_that_fails_costs_its_entry_only():
    done = ok("class B:\n    def _repr_html_(self): raise ValueError('no html')\n    def __repr__(self): raise KeyError('no text')\nB()")
    equal(sorted(done.data), ["text/plain"])
    holds("KeyError" in done.value and "no html" in done.stderr, done.value + done.stderr)
    for code in ("class B:\n    def __repr__(self): return 3\nB()", "class B:\n    def __repr__(self): raise SystemExit\nB()",
                 "class B:\n    def __getattr__(self, n): return lambda *a, **k: 1/0\nB()", "class B:\n    def __getattr__(self, n): raise SystemExit\n    x = 1\nB()",
                 "class M(type):\n    def __repr__(c): raise ValueError\nclass B(metaclass=M): pass\nB", "x = []\nx.append(x)\nx",
                 "y = []\nfor i in range(100000): y = [y]\ny", "class B:\n    def _repr_mimebundle_(self, **k): return 5\nB()",
                 "class B:\n    def _repr_mimebundle_(self, **k): return {3: 4, 'x' * 500: 'y', '': 'z'}\nB()",
                 "class S(str):\n    def __str__(self): raise ValueError\n    def __repr__(self): return self\nS('x')"):
        done = python().run(code)
        equal(done.status, "ok", code)
    equal(ok("1").value, "1")


def test_a_value_larger_than_a_line_is_omitted_and_named():
    done = ok("class B:\n    def _repr_png_(self): return b'x' * 2_000_000\n    def _repr_html_(self): return 'small'\nB()")
    equal(sorted(done.data), ["text/html", "text/plain"])
    holds("1 MiB" in done.result["omitted"]["image/png"], done.result["omitted"])
    for code in ("'x' * 5_000_000", "b'x' * 5_000_000", "list(range(5_000_000))", "class B:\n    def __repr__(self): return 'y' * 3_000_000\nB()", "'\\u1234' * 300_000",
                 "['z' * 100_000] * 900"):
        done = ok(code)
        holds(done.value and len(done.value) < LINE_MAX, code)
    holds("cut" in ok("class B:\n    def __repr__(self): return 'y' * 3_000_000\nB()").value, "a cut text must have its mark")


def test_json_is_strict_for_every_displayed_value():
    done = ok("display({'application/json': {'n': float('nan'), 'i': 2**80, 's': '\\ud800\\0', 1: (1, 2)}}, raw=True)")
    equal(done.displays[0]["data"]["application/json"], {"n": None, "i": str(2**80), "s": "?\ufffd", "1": [1, 2]})
    done = ok("d = []\nfor i in range(100): d = [d]\ndisplay({'application/json': d, 'text/plain': 't'}, raw=True)\ndisplay({'application/json': {'o': object()}}, raw=True)")
    equal(sorted(done.displays[0]["data"]), ["text/plain"])
    holds("nested" in done.displays[0]["omitted"]["application/json"] and "object" in done.displays[1]["omitted"]["application/json"], done.displays)


def test_values_are_pretty_printed():
    for code, text in (("'it\\'s'", '"it\'s"'), ("print", "<function print(*args, sep=' ', end='\\n', file=None, flush=False)>"), ("int", "int"), ("{3, 1, 2}", "{1, 2, 3}"),
                       ("{'b': 1, 'a': (1,)}", "{'b': 1, 'a': (1,)}"), ("set()", "set()"), ("ValueError('x')", "ValueError('x')")):
        equal(ok(code).value, text)
    holds(ok("list(range(2000))").value.endswith("999,\n ...]"), "a long list ends in dots")


# --- processes and descriptors ---

def test_forks_of_user_code_cannot_send_events_of_the_kernel():
    done = ok("""
import os
if os.fork() == 0:
    display('of the child')
    try:
        os.write(3, b'{"event": "finished", "id": "' + b'x' + b'", "status": "ok"}\\n')
    except OSError as e:
        print('closed', e.errno)
    1 / 0
else:
    print('status', os.waitstatus_to_exitcode(os.wait()[1]))
'parent'""")
    equal((done.value, len(done.displays)), ("'parent'", 0))
    holds("'of the child'" in done.stdout and "closed 9" in done.stdout and "status 1" in done.stdout and "ZeroDivisionError" in done.stderr, done.stdout + done.stderr)
    equal(ok("import sys\nif os.fork() == 0:\n    sys.exit(7)\nos.waitstatus_to_exitcode(os.wait()[1])").value, "7")


def test_children_do_not_inherit_the_socket():
    done = ok("import subprocess\nsubprocess.run(['sh', '-c', 'test -e /proc/self/fd/3 && echo there || echo not there'], close_fds=False, capture_output=True, text=True).stdout\n")
    equal(done.value, "'not there\\n'")
    done = ok("import multiprocessing as mp\ndef double(n): return 2 * n\nwith mp.get_context('fork').Pool(2) as pool:\n    r = pool.map(double, [1, 2, 3])\nr")
    equal(done.value, "[2, 4, 6]")


def test_a_closed_stdout_is_opened_again():
    with Kernel("python") as k:
        equal(k.run("import sys; sys.stdout.close()").status, "ok")
        equal(k.run("print('here')").stdout, "here\n")
        equal(k.run("sys.stdout = None").status, "ok")
        equal(k.run("print('again')").stdout, "again\n")
        equal(k.run("import io; sys.stdout = io.StringIO(); print('kept')").stdout, "")
        equal(k.run("sys.stdout.getvalue()").value, "'kept\\n'")


def test_threads_may_display_but_not_request_input():
    done = ok("import threading\nr = []\ndef f():\n    display('t')\n    try: input()\n    except RuntimeError as e: r.append(type(e).__name__)\nt = threading.Thread(target=f); t.start(); t.join()\nr")
    equal((done.value, len(done.displays)), ("['RuntimeError']", 1))


def test_closing_the_socket_ends_the_kernel():
    k = Kernel("python")
    k.run("import threading, time\nthreading.Thread(target=lambda: time.sleep(1000)).start()")
    k.sock.close()
    equal(k.process.wait(60), 0)


# --- requests ---

def test_malformed_lines_are_refused_and_the_kernel_continues():
    k = python()
    for line in (b"x\n", b"\n\n5\n", b"[]\n", b"{}\n", b'{"op":"execute"}\n', b'{"op":"execute","id":""}\n', b'{"op":"execute","id":5,"code":""}\n',
                 b'{"op":"execute","id":"a"}\n', b'{"op":"execute","id":"a","code":5}\n', b'{"op":"fly","id":"a"}\n', b'{"id":"a"}\n', b"\xff\xfe\n",
                 b"[" * 100 + b"\n", b'{"op":"execute","id":"a","code":"","x":' + b"[" * 40 + b"]" * 40 + b"}\n", b'{"op":"complete","id":"a","code":"x","cursor":2}\n',
                 b'{"op":"complete","id":"a","code":"x","cursor":-1}\n', b'{"op":"inspect","id":"a","code":"x","cursor":true}\n', b'{"op":"input","id":"a","text":"t"}\n',
                 b'{"op":"execute","id":"' + b"a" * 65 + b'","code":""}\n', b"y" * (LINE_MAX + 10) + b"\n", b'{"op":"execute","id":"a","code":"1"\n'):
        k.events = []
        k.send(line)
        event = k.until(lambda e: True)
        holds(event["event"] == "refused" and event["why"], (line[:60], event))
    equal(ok("'alive'").value, "'alive'")


def test_a_cell_of_almost_the_maximum_line_length_runs():
    code = "len('" + "x" * (LINE_MAX - 200) + "')"
    equal(ok(code).value, str(LINE_MAX - 200))


def test_completions_come_from_live_names():
    k = python()
    ok("value_one = 1\nvalue_two = {'key_a': 1, 'key_b': 2}\nclass C:\n    attr_x = 1\n    @property\n    def attr_p(self): print('ran'); return 1\nc = C()\ndef fun(alpha, beta=1): pass")
    for code, start, wanted in (("value_", 0, ["value_one", "value_two"]), ("x = c.attr_", 6, ["attr_p", "attr_x"]), ("c.attr_p.rea", 9, []), ("value_two['key_", 11, ["key_a", "key_b"]),
                                ("fun(al", 4, ["alpha="]), ("whil", 0, ["while"]), ("import subproc", 7, ["subprocess"]), ("from os import pathse", 15, ["pathsep"]), ("nothing_such.", 13, [])):
        found = k.complete(code)
        equal((found["start"], found["end"]), (start, len(code)), code)
        holds(found["matches"] == wanted if len(wanted) != 1 else wanted[0] in found["matches"], (code, found["matches"][:20]))
    equal(ok("1").stdout, "", "a property ran")
    found = k.complete("é = value_on", 12)
    equal((found["matches"], found["start"]), (["value_one"], 4), "the cursor counts characters")
    with tempfile.TemporaryDirectory() as folder:
        open(os.path.join(folder, "data.csv"), "w", encoding="utf-8").close()
        found = k.complete(f"open('{folder}/da")
        equal(found["matches"], [f"{folder}/data.csv"])


def test_completion_survives_a_hostile_dir():
    k = python()
    ok("class D:\n    def __dir__(self): raise SystemExit\n    def __getattr__(self, n): raise ValueError\nd = D()")
    equal(k.complete("d.x")["matches"], [])
    equal(k.complete("d.y.z")["matches"], [])
    ok("class L:\n    def __dir__(self):\n        print('go')\n        while True: pass\nl = L()")
    k.text["stdout"] = b""
    k.send({"op": "complete", "id": "loop", "code": "l.x", "cursor": 3})
    k.wait_output("go")
    k.interrupt()
    equal(k.until(lambda e: e["event"] == "completions" and e["id"] == "loop")["matches"], [])


def test_inspection_shows_signature_and_docstring():
    k = python()
    ok("def area(width, height=2):\n    '''The area of it.'''\n    return width * height")
    for code, cursor in (("area", 4), ("area(3, ", 8), ("x = area(1)", 6)):
        text = k.inspect(code, cursor)["data"]["text/plain"]
        holds("area(width, height=2)" in text and "The area of it." in text, text)
    equal(k.inspect("no_such_thing")["found"], False)
    ok("import sys")
    holds("Type:      module" in k.inspect("sys")["data"]["text/plain"], "a module")


def test_reset_forgets_all():
    with Kernel("python") as k, tempfile.TemporaryDirectory() as folder:
        k.run(f"import os, sys\nx = 1\nos.environ['LEFT'] = '1'\nos.chdir({folder!r})\nopen('own_mod.py', 'w').write('n = 1')\nimport own_mod\nsys.path.append('/nowhere')\nimport asyncio\nawait asyncio.sleep(0)")
        equal(k.ask("reset", "finished")["status"], "ok")
        done = k.run("x")
        equal((done.error["name"], done.count), ("NameError", 1))
        equal(k.run("import os, sys\n'LEFT' in os.environ, os.getcwd() == " + repr(os.path.realpath(folder)) + ", 'own_mod' in sys.modules, '/nowhere' in sys.path").value, "(False, False, False, False)")
        equal(k.run("import asyncio\nawait asyncio.sleep(0, 'fresh loop')").value, "'fresh loop'")
        equal(k.run("_").value, "'fresh loop'")


def test_environment_and_cwd_are_those_of_the_process():
    with tempfile.TemporaryDirectory() as folder:
        open(os.path.join(folder, "beside.py"), "w", encoding="utf-8").write("n = 7")
        with Kernel("python", env={"PATH": os.environ["PATH"], "MINE": "1"}, cwd=folder) as k:
            equal(k.run("import beside, os\nbeside.n, os.environ['MINE']").value, "(7, '1')")


def test_a_fork_of_the_package_is_an_independent_kernel():
    """As a zygote does it: import once, fork, main(fd) in the child."""
    done = ok("""
import sys, os, socket, json, importlib.util, threading
path = os.path.join(os.path.dirname(os.path.dirname(sys.modules['covekernel'].__file__)), 'kernel.py')
script = f'''
import os, socket, sys, importlib.util, threading, json, random
spec = importlib.util.spec_from_file_location("kernel_entry", {path!r})
entry = importlib.util.module_from_spec(spec)
spec.loader.exec_module(entry)
package = entry.load()
package.prepare()
assert threading.active_count() == 1, "a thread began at import"
answers = []
for i in range(2):
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        package.reseed(); package.main(theirs.fileno())
    theirs.close()
    lines = ours.makefile("rw")
    assert json.loads(lines.readline())["event"] == "ready"
    lines.write(json.dumps(dict(op="execute", id="a", code="import random; random.random()")) + chr(10))
    lines.flush()
    while True:
        event = json.loads(lines.readline())
        if event["event"] == "result":
            answers.append(event["data"]["text/plain"])
        if event["event"] == "finished":
            break
    ours.close(); lines.close()
print(len(set(answers)))
'''
import subprocess
subprocess.run([sys.executable, '-I', '-c', script], capture_output=True, text=True)""")
    holds("stdout='2\\n'" in done.value, done.value)


# --- as a fork of a zygote ---

def test_a_rehearsed_fork_starts_like_a_fresh_kernel():
    looks = ("sorted(globals())", "import sys; sys.argv, sys.path, sys.stdin.isatty(), sys.stdout.line_buffering, '__main__' in sys.modules",
             "import signal, os; signal.getsignal(signal.SIGPIPE), signal.getsignal(signal.SIGINT) is not None, os.getcwd()",
             "import linecache; sorted(n for n in linecache.cache if n.startswith('<'))", "'_' in dir(__builtins__)", "1 / 0", "input('name? ') if False else 6 * 7")
    with Kernel("python") as plain, Kernel("python-member") as member:
        equal(member.ready, plain.ready)
        for code in looks:
            a, b = plain.run(code), member.run(code)
            equal((b.status, b.count, b.value, b.stdout, b.stderr, b.error and b.error["traceback"]), (a.status, a.count, a.value, a.stdout, a.stderr, a.error and a.error["traceback"]), code)


def test_a_fork_is_interrupted_and_its_children_cannot_send_its_events():
    with Kernel("python-member") as k:
        done = k.run("import os, time\nif os.fork() == 0: raise SystemExit(3)\nos.waitstatus_to_exitcode(os.wait()[1])")
        equal((done.status, done.value), ("ok", "3"))
        equal(k.run("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nwhile True: pass").status, "interrupted")
        equal(k.run("1 + 1").value, "2")


# --- forks of a context ---

def forkable():
    """The kernel of the build, which has the native part of a fork."""
    return Kernel("python", command=[PYTHON, "-I", os.path.join(ROOT, "build/runtimes/python/kernel.py")])


def test_a_fork_continues_with_the_state_and_is_independent():
    with forkable() as k:
        k.run("import os, json\nx = [1]\ndef double(n): return 2 * n\nos.environ['HERE'] = 'yes'\nos.chdir('/tmp')\nf = open('/proc/self/status')")
        with k.fork() as twin:
            done = twin.run("x.append(2)\nx, double(21), os.environ['HERE'], os.getcwd(), json.dumps(x), f.readline()[:5]")
            equal(done.value, "([1, 2], 42, 'yes', '/tmp', '[1, 2]', 'Name:')")
            equal(done.count, 2)
            equal(k.run("x").value, "[1]")
            k.run("x.append('mine')")
            equal(twin.run("x").value, "[1, 2]")
            holds(twin.process.pid != k.process.pid, "two processes")
            equal(twin.run("os.getppid()").value, str(os.getpid()), "the parent must be the process that reaps")
            equal(k.run("try:\n    os.waitpid(-1, os.WNOHANG)\nexcept ChildProcessError:\n    print('none')").stdout, "none\n")


def test_a_fork_writes_to_its_own_pipes_and_handles_its_own_interrupt():
    with forkable() as k:
        with k.fork() as twin:
            done = twin.run("import subprocess\nprint('mine')\nsubprocess.run(['sh', '-c', 'echo child; echo bad >&2'])\n1 / 0")
            equal((done.stdout, done.stderr, done.error["name"]), ("mine\nchild\n", "bad\n", "ZeroDivisionError"))
            equal((k.text["stdout"], k.text["stderr"]), (b"", b""))
            equal(twin.interrupted("print('go', flush=True)\nwhile True: pass").status, "interrupted")
            equal(k.run("'calm'").value, "'calm'")
            id = twin.begin("input('?')")
            twin.until(lambda e: e["event"] == "input")
            twin.send({"op": "input", "id": id, "text": "to the fork"})
            equal(twin.end(id).value, "'to the fork'")


def test_a_fork_has_its_own_random_numbers():
    code = "import random, ssl, tempfile\n(random.random(), ssl.RAND_bytes(8).hex(), next(tempfile._get_candidate_names()))"
    with forkable() as k:
        k.run(code)
        with k.fork() as one, k.fork() as two:
            all = [tuple(x.run(code).value.strip("()").split(", ")) for x in (k, one, two)]
            for column in zip(*all):
                equal(len(set(column)), 3, column)


def test_a_fork_of_a_fork_works_and_each_may_die_alone():
    with forkable() as k:
        k.run("x = 1")
        one = k.fork()
        one.run("x = 2")
        with one.fork() as two:
            one.begin("import os; os._exit(7)")
            equal(one.process.wait(), 7)
            one.close()
            equal((k.run("x").value, two.run("x").value), ("1", "2"))
            k.sock.close()
            k.process.wait(120)
            equal(two.run("x + 1").value, "3")


def test_a_default_timeout_of_sockets_affects_user_code_only():
    with forkable() as k:
        k.run("import socket; socket.setdefaulttimeout(0.01)")
        with k.fork() as twin:
            twin.run("import threading; timer = threading.Timer(0.2, print, ('later',)); timer.start()")
            twin.wait_output("later")  # longer than the timeout, with nothing to read
            equal((twin.run("socket.getdefaulttimeout()").value, k.run("1 + 1").value), ("0.01", "2"))


def test_a_refused_fork_names_the_threads():
    with forkable() as k:
        k.run("import threading\nleave = threading.Event()\nt = threading.Thread(target=leave.wait, name='poller')\nt.start()")
        why = k.fork()
        holds(isinstance(why, bytes) and why.startswith(b"n1 thread beside the main one: poller"), why)
        k.run("leave.set()\nt.join()")
        with k.fork() as twin:
            equal(twin.run("t.is_alive()").value, "False")
        holds(all(e["event"] != "refused" for e in k.events), k.events)


def test_a_fork_refused_for_threads_of_a_library_says_how_to_avoid_them():
    with forkable() as k:
        k.run("import _thread, sys\nlock = _thread.allocate_lock()\nlock.acquire()\n_thread.start_new_thread(lock.acquire, ())")
        why = k.fork()
        holds(isinstance(why, bytes) and why.startswith(b"n1 thread beside the main one: ") and b"NumPy" not in why, why)
        k.run("sys.modules['numpy'] = sys")  # it looks as if it had been imported
        why = k.fork()
        holds(isinstance(why, bytes) and why.endswith(b"(NumPy has none with OPENBLAS_NUM_THREADS=1 in env)"), why)


def test_tasks_of_asyncio_continue_in_both():
    with forkable() as k:
        k.run("import asyncio\nn = 0\nasync def tick():\n    global n\n    while True:\n        n += 1\n        await asyncio.sleep(0)\n"
              "async def begin():\n    global task\n    task = asyncio.create_task(tick())\nawait begin()")
        with k.fork() as twin:
            for x in (twin, k):
                before = int(x.run("n").value)
                x.run("await asyncio.sleep(0.01)")
                holds(int(x.run("n").value) > before, "the task does not run")


def test_a_fork_request_without_descriptors_is_refused():
    with Kernel("python") as k:
        equal(k.ask("fork", "never")["event"], "refused")
        equal(k.run("1 + 1").value, "2")


def test_output_of_user_hooks_in_a_fork_belongs_to_the_fork():
    with forkable() as k:
        k.run("import os\nos.register_at_fork(after_in_child=lambda: print('hook', flush=True))")
        with k.fork() as twin:
            twin.wait_output("hook")
            equal(k.run("2").stdout, "")


if __name__ == "__main__":
    code = main(collect(globals()))
    for kernel in kernels.values():
        kernel.close()
    sys.exit(code)
