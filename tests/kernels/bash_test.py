#!/usr/bin/env python3
"""bash_test.py - the bash language kernel, over a socket and pipes; prints TAP.

    tests/kernels/bash_test.py [WORD...]     those whose title contains a word
    COVE_BASH_KERNEL=PROGRAM                 another build of it
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kernel import COMMANDS, LINE_MAX, Kernel, collect, equal, holds, main  # noqa: E402

kernels = {}


def bash():
    if "shared" not in kernels or kernels["shared"].process.poll() is not None:
        kernels["shared"] = Kernel("bash")
    return kernels["shared"]


def out(code):
    done = bash().run(code)
    equal(done.status, "ok", f"{code!r}: {done.error} {done.stderr}")
    return done.stdout


def status(done):
    return done.error["name"], done.error["value"]


def test_ready_names_the_language_and_the_protocol():
    with Kernel("bash") as k:
        equal({n: k.ready[n] for n in ("event", "language", "protocol")}, {"event": "ready", "language": "bash", "protocol": 1})
        holds(k.ready["version"][0].isdigit(), k.ready)


def test_variables_functions_aliases_options_and_directory_persist():
    with Kernel("bash") as k, tempfile.TemporaryDirectory() as folder:
        equal(k.run(f"x='a  b'; arr=(1 '2 3'); declare -A map=([k]=v); f() {{ echo \"f:$1\"; }}; alias hi='echo hello'; shopt -s nullglob; cd {folder}; export E=1").status, "ok")
        done = k.run('echo "$x|${arr[1]}|${map[k]}"; f 2; hi; echo *.none; pwd; sh -c "echo $E"')
        equal((done.status, done.stdout), ("ok", f"a  b|2 3|v\nf:2\nhello\n\n{folder}\n1\n"))
        equal(done.count, 2)


def test_declarations_are_global():
    out("declare d=1; typeset t=2; readonly r=3")
    equal(out("echo $d$t$r"), "123\n")


def test_a_nonzero_status_of_a_cell_is_its_error():
    equal(status(bash().run("(exit 3)")), ("ExitStatus", "3"))
    equal(bash().run("false; true").status, "ok")
    equal(out("(exit 3) || echo caught"), "caught\n")
    bash().run("(exit 5)")
    equal(out("echo $?"), "5\n")
    equal(status(bash().run("no_such_command_here")), ("ExitStatus", "127"))
    equal(bash().run("").status, "ok")
    equal(bash().run("# nothing").status, "ok")


def test_stdout_and_stderr_arrive_separately_and_in_time():
    done = bash().run("echo out; echo err >&2; printf 'no newline'")
    equal((done.stdout, done.stderr), ("out\nno newline", "err\n"))
    equal(bash().run("echo a\necho b; { echo c; } &\nwait").stdout, "a\nb\nc\n")
    equal(out("cat <<X\nheredoc $((1 + 1))\nX"), "heredoc 2\n")
    equal(out("echo '!!' \"!x\""), "!! !x\n", "no history")


def test_syntax_errors_are_reported_and_cost_only_their_cell():
    for code in ("if then", "echo 'unclosed", "for", "echo $(", "((", "}", "case x in"):
        done = bash().run(code)
        equal(done.status, "error", code)
        holds(done.stderr, code)
    equal(out("echo fine"), "fine\n")


def test_errors_that_end_a_script_do_not_end_the_context():
    out("kept=1")
    for code in ("set -u; echo $no_such", "set +u; : ${no_such:?is missing}", "readonly ro=1; ro=2", "return 3", "local x=1", "shift 5"):
        bash().run(code)
    equal(out("echo $kept"), "1\n")


def test_exit_ends_the_cell_and_keeps_the_state():
    with Kernel("bash") as k, tempfile.TemporaryDirectory() as folder:
        k.run(f"x='a\n\"b'; arr=(1 '2 3'); f() {{ echo kept $1; }}; alias hi='echo hello'; cd {folder}; export E=1; shopt -s nullglob; readonly RO=7")
        done = k.run("echo before; exit 3; echo never")
        equal((done.stdout, done.stderr, status(done)), ("before\n", "", ("ExitStatus", "3")))
        equal(k.run('echo "$?"').stdout, "3\n")
        done = k.run('echo "$x|${arr[1]}|$RO"; f 1; hi; pwd; sh -c "echo $E"; shopt -q nullglob && echo null')
        equal((done.stdout, done.stderr), (f"a\n\"b|2 3|7\nkept 1\nhello\n{folder}\n1\nnull\n", ""))
        equal(k.run("exit").status, "ok")
        equal(k.run("exit 0").status, "ok")
        equal(status(k.run("set -e; false; echo never")), ("ExitStatus", "1"))
        equal(k.run("set +e; echo \"$RO\"").stdout, "7\n")
        equal(k.run("(exit 4); echo $?").stdout, "4\n", "a subshell is not the cell")


def test_a_replaced_or_killed_shell_is_reported_and_restarted():
    with Kernel("bash") as k:
        k.run("x=1")
        for code in ("exec true", "kill -9 $$", "kill -9 $$; sleep 5"):
            done = k.run(code)
            equal((done.status, done.error["name"]), ("error", "ShellEnded"), code)
            equal(k.run("echo \"[$x]\"").stdout, "[]\n")


def test_interrupt_ends_loops_commands_and_reads():
    out("kept=1")
    # A program that is being started when the signal arrives may receive it; so the program itself
    # prints that it runs.
    waits = "sh -c 'echo go; exec sleep 1000'"
    for code in ("echo go; while :; do :; done", waits, f"for i in 1 2 3; do {waits}; done", f"({waits})", f"wait_for() {{ {waits}; }}; wait_for"):
        done = bash().interrupted(f"{code}; echo never")
        equal((done.status, done.error and done.error["name"]), ("interrupted", "Interrupted"), code)
        holds("never" not in done.stdout, code)
    k = bash()
    id = k.begin("read x; echo never")
    k.until(lambda e: e["event"] == "input")
    k.interrupt()
    equal(k.end(id).status, "interrupted")
    equal(out("echo $kept"), "1\n")


def test_a_trapped_interrupt_belongs_to_the_cell():
    done = bash().interrupted("trap 'echo trapped' INT; sh -c 'echo go; exec sleep 1000'; echo after; trap - INT")
    equal(done.status, "ok")
    holds("trapped" in done.stdout and "after" in done.stdout, done.stdout)


def test_an_interrupt_while_idle_is_ignored():
    k = bash()
    for _ in range(20):
        k.interrupt()
        holds(k.run("echo x").status in ("ok", "interrupted"), "a cell ends")
    equal(out("echo alive"), "alive\n")


def test_many_interrupts_lose_no_cell():
    k = bash()
    for _ in range(25):
        id = k.begin("echo go")
        k.wait_output("go")
        k.interrupt()  # at about the time at which the cell ends
        done = k.end(id)
        holds(done.status in ("ok", "interrupted"), (done.events, done.stderr))


def test_read_requests_input_by_an_event_and_other_input_is_empty():
    k = bash()
    for code, reply, stdout, prompt, secret in (
            ("read -r -p 'name? ' n; echo \"[$n]\"", {"text": "zoë \\x"}, "[zoë \\x]\n", "name? ", False), ("read -s p; echo \"[$p]\"", {"text": "pw"}, "[pw]\n", "", True),
            ("read a b; echo \"$b,$a\"", {"text": "1 2 3"}, "2 3,1\n", "", False), ("read x || echo eof", {"eof": True}, "eof\n", "", False), ("read; echo $REPLY", {"text": "r"}, "r\n", "", False),
            ("g() { local v; read v; echo $v; }; g", {"text": "local"}, "local\n", "", False), ("while read l; do echo $l; break; done", {"text": "loop"}, "loop\n", "", False)):
        id = k.begin(code)
        event = k.until(lambda e: e["event"] == "input")
        equal((event["prompt"], event["password"]), (prompt, secret), code)
        k.send({"op": "input", "id": "other", "text": "not mine"})
        k.until(lambda e: e["event"] == "refused")
        k.send({"op": "input", "id": id, **reply})
        done = k.end(id)
        equal((done.status, done.stdout), ("ok", stdout), code)
    equal(out("cat; printf 'a\\nb\\n' | while read x; do echo \"<$x>\"; done; read y <<< here; echo $y; read z < /etc/hostname; echo ${#z} | grep -c ."), "<a>\n<b>\nhere\n1\n")


def test_children_do_not_inherit_the_socket():
    equal(out("test -S /proc/self/fd/3 && echo there || echo not there; sh -c 'test -S /proc/self/fd/3 && echo there || echo not there'"), "not there\nnot there\n")


def test_a_background_child_does_not_hold_the_cell():
    done = bash().run("sleep 300 & echo started; child=$!")
    equal((done.status, done.stdout), ("ok", "started\n"))
    equal(out("kill $child && echo gone"), "gone\n")


def test_malformed_lines_are_refused_and_the_kernel_continues():
    k = bash()
    for line in (b"x\n", b"\n\n5\n", b"[]\n", b"{}\n", b'{"op":"execute"}\n', b'{"op":"execute","id":""}\n', b'{"op":"execute","id":5,"code":""}\n', b'{"op":"execute","id":"a","code":"a\\u0000b"}\n',
                 b'{"op":"execute","id":"a"}\n', b'{"op":"execute","id":"a","code":5}\n', b'{"op":"fly","id":"a"}\n', b'{"id":"a"}\n', b"\xff\xfe\n", b"a\0b\n",
                 b'{"op":"execute","id":"a","code":"","x":' + b"[" * 40 + b"]" * 40 + b"}\n", b'{"op":"complete","id":"a","code":"x","cursor":2}\n',
                 b'{"op":"complete","id":"a","code":"x","cursor":-1}\n', b'{"op":"inspect","id":"a","code":"x","cursor":true}\n', b'{"op":"input","id":"a","text":"t"}\n',
                 b'{"op":"execute","id":"' + b"a" * 65 + b'","code":""}\n', b"y" * (LINE_MAX + 10) + b"\n", b'{"op":"execute","id":"a","code":"1"\n'):
        k.events = []
        k.send(line)
        event = k.until(lambda e: True)
        holds(event["event"] == "refused" and event["why"], (line[:60], event))
    equal(out("echo alive"), "alive\n")


def test_requests_during_a_cell_are_queued_in_order():
    k = bash()
    id = k.begin("read x; echo $x")
    k.until(lambda e: e["event"] == "input")
    for i in range(3):
        k.send({"op": "execute", "id": f"q{i}", "code": f"echo q{i}"})
    k.send({"op": "input", "id": id, "text": "first"})
    k.until(lambda e: e["event"] == "finished" and e["id"] == "q2")
    equal([e["id"] for e in k.events if e["event"] == "finished"], [id, "q0", "q1", "q2"])
    equal(k.text["stdout"], b"first\nq0\nq1\nq2\n")


def test_a_cell_of_almost_the_maximum_line_length_runs():
    equal(out("x='" + "y" * (LINE_MAX - 200) + "'; echo ${#x}"), f"{LINE_MAX - 200}\n")


def test_completions_come_from_live_names():
    k = bash()
    with tempfile.TemporaryDirectory() as folder:
        open(os.path.join(folder, "data.csv"), "w", encoding="utf-8").close()
        out(f"my_function() {{ :; }}; my_variable=1; cd {folder}")
        for code, start, wanted in (("my_func", 0, ["my_function"]), ("echo $my_var", 6, ["my_variable"]), ("echo ${my_var", 7, ["my_variable"]), ("cat da", 4, ["data.csv"]), ("ls; my_fun", 4, ["my_function"]),
                                    ("no_such_thing_x", 0, [])):
            found = k.complete(code)
            equal((found["matches"], found["start"], found["end"]), (wanted, start, len(code)), code)
        found = k.complete("echo \U0001f600 $my_var", 14)
        equal((found["matches"], found["start"]), (["my_variable"], 8), "the cursor counts characters")
        out("cd /")
    holds("echo" in k.complete("ech")["matches"], "builtins")


def test_inspection_describes_a_word():
    k = bash()
    out("area() { echo $(( $1 * $2 )); }; my_variable='v w'")
    holds("area is a function" in k.inspect("area 1 2", 2)["data"]["text/plain"], "a function")
    holds("v w" in k.inspect("echo $my_variable", 10)["data"]["text/plain"], "a variable")
    equal(k.inspect("no_such_thing")["found"], False)


def test_reset_forgets_all():
    with Kernel("bash") as k:
        k.run("x=1; f() { :; }; cd /; sleep 300 &")
        equal(k.ask("reset", "finished")["status"], "ok")
        done = k.run("echo \"[$x]\"; type f; pwd")
        equal((done.stdout, done.count), (f"[]\n{os.getcwd()}\n", 1))


LOOK = "echo \"${A-unset} ${B-unset} $PWD $(printenv B)\""


def test_env_and_cwd_of_a_cell_are_set_for_it_and_restored():
    with Kernel("bash", env={**os.environ, "A": "outer"}) as k:
        before = k.run(LOOK).stdout
        equal(k.run(LOOK, env={"A": "it's \"x\" $(exit 3) \\", "B": "2"}, cwd="/tmp").stdout, "it's \"x\" $(exit 3) \\ 2 /tmp 2\n")
        equal(k.run(LOOK).stdout, before)
        k.run("A=x; export B=y C=kept; cd /", env={"A": "1", "B": "2"}, cwd="/tmp")
        equal(k.run(LOOK).stdout, before)
        equal(k.run("printenv C").stdout, "kept\n")
        equal(k.run("B=plain; (exit 3)").error["value"], "3")
        equal(k.run("echo $? $(printenv B)", env={"B": "2"}).stdout, "3 2\n")
        equal(k.run("echo $B; printenv B").stdout, "plain\n")


def test_env_of_a_cell_that_ends_the_shell_is_restored():
    with Kernel("bash", env={**os.environ, "A": "outer"}) as k:
        before = k.run(LOOK).stdout
        for code in ("exit 4", "set -e; false", "kill -KILL $$"):
            holds(k.run(code, env={"A": "1", "B": "2"}, cwd="/tmp").status == "error", code)
            equal(k.run("set +e; " + LOOK).stdout, before, code)


def test_env_of_an_interrupted_cell_is_restored():
    with Kernel("bash") as k:
        before = k.run(LOOK).stdout
        id = k.begin("echo go; sleep 100", env={"B": "2"}, cwd="/tmp")
        while b"go" not in k.text["stdout"]:
            k.pump(1)
        k.interrupt()
        equal(k.end(id).status, "interrupted")
        equal(k.run(LOOK).stdout, before)


def test_a_cwd_that_does_not_exist_ends_the_cell():
    with Kernel("bash") as k:
        done = k.run("echo ran", cwd="/nowhere", env={"B": "2"})
        equal((done.status, done.stdout), ("error", ""))
        holds("/nowhere" in done.stderr, done.stderr)
        equal(k.run("echo ${B-unset}").stdout, "unset\n")
        for fields in ({"env": {"A": 1}}, {"env": []}, {"cwd": 1}):
            equal(k.ask("execute", "finished", code="1", **fields)["event"], "refused")


def test_hostile_shell_code_costs_its_cell_only():
    with Kernel("bash") as k:
        for code in ("printf 'D999 0\\0' >&250", "printf 'garbage' >&250; printf '\\0\\0\\0D\\0I\\0Dx y\\0' >&250", "head -c 3000000 /dev/zero | tr '\\0' x >&250", "unset -f read exit; true", "PS1='loud> '; PROMPT_COMMAND='echo pc >&2'; true"):
            holds(k.run(code).status in ("ok", "error"), code)
        k.run("PS1=; PROMPT_COMMAND=")
        equal(k.run("echo alive").stdout, "alive\n")


def test_closing_the_socket_ends_kernel_and_shell():
    k = Kernel("bash")
    pid = int(k.run("echo $$").stdout)
    k.sock.close()
    equal(k.process.wait(60), 0)
    holds(not os.path.exists(f"/proc/{pid}"), "the shell is still alive")


if __name__ == "__main__":
    if not os.path.exists(COMMANDS["bash"][0]):
        print(f"1..1\nnot ok 1 - {COMMANDS['bash'][0]} is not built; run tests/check build first")
        sys.exit(1)
    code = main(collect(globals()))
    for kernel in kernels.values():
        kernel.close()
    sys.exit(code)
