"""session.py - the main loop of a kernel: requests in, events out, one at a time.

Interrupts. SIGINT raises KeyboardInterrupt in the main thread, where user code runs, but only while
the session is `armed`; inside a `shield` it waits until the line that is being read or written is
complete. Between executions it is ignored. Code that neither returns to the interpreter nor ends
must be killed by the server.

A zygote makes, settles and rehearses the session before it forks, so that all forks share its
pages. Until forked() the session does nothing on a fork.

Forks. A child process of user code inherits all of this but must not act as the kernel: it loses
the socket when it is forked, and exits when it returns from the cell.

A fork of the context is different: the server requests it between two cells and sends descriptors,
and the copy continues as a kernel of its own in this same loop (twin.py).
"""
import _signal as signal  # the functions of `signal` look names up by exceptions, in every cell
import _socket
import builtins
import errno
import gc
import importlib
import os
import sys
import threading
import types
from _thread import get_ident

from covekernel import cell, check, figures, overrides, reseed, rich, twin, wire

current = None  # the session of this process, for display() and the matplotlib backend
READY = b'{"event": "ready", "language": "python", "version": "%s", "protocol": 1}\n' % sys.version.split()[0].encode()
LATER_MAX = 256  # requests that may wait while a cell waits for input
PROMPT_MAX = 64 << 10
REHEARSED = (b"print(end='')", b"import sys; x = len(sys.path); print(end='')")
REHEARSED_CHECK = """import math
from collections import Counter as C
def area(r, *a, k=1):
    return math.pi * r ** 2 + k if r > 0 and k else -r
class P:
    x: int = 0
    def f(self): return self.x
data = {"a": [1, 2.5], "b": (True, None)}
for i, n in enumerate(sorted(data)):
    while i < 3: i += 1
    if n == "a": continue
    try: print(f"{n}: {data[n]!r}", [area(v) for v in range(3) if v], "%s" % n, n[0:1])
    except ValueError as e: pass
sum(v for v in {x: x for x in [1]}.values())
(lambda q: q.strip().upper())("a" + "b")
"""
REHEARSED_NUMPY = b"import numpy as np; print(end=str(int(np.arange(1000).sum()))[:0])"


class Shield:
    """Holds interrupts back in the main thread; other threads are never interrupted."""

    def __init__(self):
        self.depth, self.pending, self.armed, self.fired = 0, False, False, False
        self.main = get_ident()  # the same after a fork

    def __enter__(self):
        if get_ident() == self.main:
            self.depth += 1

    def __exit__(self, *_):
        if get_ident() != self.main:
            return
        self.depth -= 1
        if self.depth == 0 and self.pending:
            self.pending = False
            self.interrupt()

    def on_signal(self, signum, frame):
        if self.depth:
            self.pending = True
        else:
            self.interrupt()

    def interrupt(self):
        if self.armed:
            self.fired = True
            raise KeyboardInterrupt

    def disarm(self):
        while True:
            try:
                self.armed = False
                self.pending = False
                return
            except KeyboardInterrupt:
                pass

    def guarded(self, function, *args):
        """Returns (value, None) or (None, exception); the exception may be an interrupt."""
        try:
            self.armed = True
            try:
                return function(*args), None
            except BaseException as error:
                return None, error
            finally:
                self.disarm()
        except KeyboardInterrupt as error:
            self.disarm()
            return None, error


class Stdin:
    """sys.stdin of a cell: an event requests each line. The rest of a line that a call has not read
    stays in the session, for the next call."""
    encoding, errors, newlines, closed, name, mode = "utf-8", "strict", None, False, "<stdin>", "r"

    def __init__(self, session):
        self._session = session

    def readline(self, size=-1):
        try:
            line = self._session.read_line("", False)
        except EOFError:
            return ""
        if size is None or size < 0:
            return line
        self._session.unread = line[size:]
        return line[:size]

    def read(self, size=-1):
        if size is None or size < 0:
            return "".join(self)
        pieces = []
        while size > 0:
            pieces.append(self.readline(size))
            size -= len(pieces[-1])
            if not pieces[-1]:
                break
        return "".join(pieces)

    def readlines(self, hint=-1):
        return list(self)

    def __iter__(self):
        return iter(self.readline, "")

    def __next__(self):
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    def fileno(self):
        return 0

    def isatty(self):
        return False

    def readable(self):
        return True

    def writable(self):
        return False

    def seekable(self):
        return False

    def close(self):
        """exit() closes it, but the next cell needs it again."""

    flush = close


class Session:
    def __init__(self, fd):
        global current
        self.channel = wire.Channel(fd)
        self.shield = Shield()
        self.pid = os.getpid()
        self.count = 0
        self.id = None  # of the running execution
        self.unread = ""  # the rest of a line of input
        self.later = []
        self.loop = None
        self.figures_shown = []
        self.user_site = self.bare_path = None
        self.settled = False
        self.before_fork = False  # it belongs to a zygote, for later forks
        self.streams = (sys.stdout, sys.stderr)
        self.twin = None  # descriptors of the copy, while the context is being forked
        current = self
        self.fresh_namespace()

    # --- state of the process ---

    def set_up_process(self):
        gc.enable()
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
        self.streams = (sys.stdout, sys.stderr)
        sys.stdin = sys.__stdin__ = Stdin(self)
        sys.argv[:] = [""]
        import getpass
        getpass.getpass = lambda prompt="Password: ", stream=None: self.ask(prompt, True)
        builtins.input = lambda prompt="", /: self.ask(prompt, False)
        builtins.display = display
        figures.install()
        os.register_at_fork(before=self.flush, after_in_child=self.become_child)
        signal.signal(signal.SIGINT, self.shield.on_signal)

    def settle(self):
        """Sets what depends on the environment. A zygote does it for the usual environment, and a
        fork again if its own differs."""
        import site
        if self.bare_path is None:
            self.bare_path = list(sys.path)
        self.user_site = site.USER_BASE = site.USER_SITE = None
        sys.path[:] = ["", *(p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p), *self.bare_path]
        if os.environ.get("HOME"):  # isolated mode omits the packages that the user installed
            self.user_site = site.getusersitepackages()
            sys.path.append(self.user_site)
        self.start = (dict(os.environ), list(sys.path), list(sys.argv))
        self.settled = True

    def rehearse(self):
        """Runs cells without a request: afterwards the slow first run is done, and the pages that a
        fork would copy on the first write are written. Leaves no state."""
        before, channel = signal.getsignal(signal.SIGINT), self.channel
        host, ours = _socket.socketpair()
        self.channel = wire.Channel(ours.detach())
        for code in REHEARSED:
            host.send(b'{"op":"execute","id":"rehearsal","code":"%s"}\n' % code)
            self.begin(b"")
            self.serve_one(self.next_line())
        if "numpy" in sys.modules:
            host.send(b'{"op":"execute","id":"rehearsal","code":"%s"}\n' % REHEARSED_NUMPY)
            self.serve_one(self.next_line())
        wire.fit({"event": "result", "data": rich.bundle_of(0).data})
        check.examine(REHEARSED_CHECK)
        self.channel.forget()
        host.close()
        self.channel, self.count = channel, 0
        signal.signal(signal.SIGINT, before)
        cell.forget()
        self.fresh_namespace()

    def forked(self):
        """Called in the forked process, to which the fork brings neither pid nor signals."""
        self.before_fork, self.pid = False, os.getpid()
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as in an interpreter that was just started
        signal.signal(signal.SIGINT, self.shield.on_signal)

    def fresh_namespace(self):
        self.main = types.ModuleType("__main__")
        self.main.__dict__.update({"__builtins__": builtins, "__doc__": None})
        sys.modules["__main__"] = self.main
        builtins.__dict__.pop("_", None)

    def become_child(self):
        if self.before_fork:
            return
        self.channel.forget()
        if self.twin:
            self.become_twin()
        else:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def become_twin(self):
        """Runs before the fork hooks of user code: their output belongs to the copy, after its
        first message. A client that waits for the copy does not wait for the rest of its
        preparations."""
        fds, self.twin = self.twin, None
        twin.settle(fds)
        self.channel = wire.Channel(3)
        self.channel.write(twin.READY)
        self.shield = Shield()
        self.pid, self.id, self.later = os.getpid(), None, []
        signal.signal(signal.SIGINT, self.shield.on_signal)

    def end_child(self, error):
        """A process that user code forked has reached the end of its cell."""
        status = 0
        if isinstance(error, SystemExit):
            status = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        elif error is not None:
            print("\n".join(cell.traceback_lines(error)), file=sys.stderr)
            status = 1
        self.flush()
        os._exit(status & 255)

    def flush(self):
        """Makes sure that all output so far is in the pipes before an event about it is sent."""
        seen = []
        out, err = self.streams
        for stream in (out, err) if sys.stdout is out and sys.stderr is err else (sys.stdout, sys.stderr, out, err):
            if any(stream is s for s in seen):
                continue
            seen.append(stream)
            try:
                stream.flush()
            except KeyboardInterrupt:
                raise
            except BaseException:
                pass
        ctypes = sys.modules.get("ctypes")
        if ctypes is not None:
            try:
                ctypes.CDLL(None).fflush(None)  # output of C code
            except Exception:
                pass

    # --- events ---

    def send(self, event, **fields):
        with self.shield:
            return self.channel.send({"event": event, "id": self.id, **fields})

    def send_word(self, event, field, value):
        """As send(), for an event with one field, without the slower steps."""
        with self.shield:
            self.channel.write(f'{{"event": "{event}", "id": {wire.quote(self.id)}, "{field}": {value}}}\n'.encode())

    def show(self, bundle):
        if not bundle.data and not bundle.omitted:
            return
        self.flush()
        if self.id is None or self.channel.fd < 0:  # called by a thread between cells, or in a forked process
            print(bundle.data.get("text/plain", ""))
        else:
            self.send("display", **bundle.fields())

    def show_figures(self):
        for figure in figures.open_figures():
            if not any(figure is shown for shown in self.figures_shown):
                self.show(rich.bundle_of(figure))
            figures.close(figure)
        self.figures_shown = []

    def report(self, error):
        """Sends an error. The error's own methods may be hostile, so an interrupt ends them too."""
        lines, late = self.shield.guarded(lambda: (cell.value_of(error), cell.traceback_lines(error)))
        value, lines = lines if late is None else ("", [])
        if isinstance(error, KeyboardInterrupt) and not value:
            value = "the cell was interrupted"
        self.send("error", name=wire.clean_text(cell.name_of(error)), value=wire.clean_text(value),
                  traceback=[wire.clean_text(line) for line in lines])

    # --- input ---

    def ask(self, prompt, password):
        line = self.read_line(prompt, password)
        if not line:
            raise EOFError("end of input")
        return line.removesuffix("\n")

    def read_line(self, prompt, password):
        """With its newline; without one if the input ends first; "" at the end of the input."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("input() works only in the main thread")
        if self.id is None or self.channel.fd < 0:
            raise EOFError("input() is not available here")
        self.flush()
        pieces = [self.unread]
        self.unread = ""
        if pieces[0].endswith("\n"):
            return pieces[0]
        self.send("input", prompt=wire.clean_text(str(prompt))[:PROMPT_MAX], password=bool(password))
        while True:
            request = self.next_line()
            if request is None:
                raise EOFError("the connection is closed")
            if request.get("op") != "input":
                if len(self.later) >= LATER_MAX:
                    self.channel.refuse("too many requests wait", request["id"])
                else:
                    self.later.append(request)
            elif request["id"] != self.id:
                self.channel.refuse("no such execution waits for input", request["id"])
            elif request.get("eof") is True:
                return "".join(pieces)
            elif not isinstance(request.get("text"), str):
                self.channel.refuse("text is not a string", request["id"])
            elif request.get("more") is True:
                pieces.append(request["text"])
                self.send("input", prompt="", password=bool(password))
            else:
                return "".join(pieces) + request["text"] + "\n"

    # --- requests ---

    def next_line(self):
        """The next request that could be read; None if the server has closed the socket."""
        while True:
            with self.shield:
                while self.channel.lines:
                    request = self.channel.parse(self.channel.lines.popleft())
                    if request is not None:
                        return request
            if self.channel.closed:
                return None
            if self.shield.armed:
                self.channel.wait()
                with self.shield:
                    self.channel.fill()
            else:
                with self.shield:
                    self.channel.write()
                    self.channel.fill(0)

    def begin(self, word):
        """The first message is sent together with the reply to the first request, if that has
        already arrived."""
        self.cwd = os.getcwd()
        self.channel.defer(word + READY)
        self.channel.fill()

    def serve(self, joined=False):
        if not self.settled:
            self.settle()
        self.begin(twin.READY if joined else b"")
        while True:
            request = self.later.pop(0) if self.later else self.next_line()
            if request is None:
                self.channel.write()
                self.flush()
                os._exit(0)
            self.serve_one(request)

    def serve_one(self, request):
        op, id = request.get("op"), request["id"]
        if op in ("execute", "check", "complete", "inspect") and not isinstance(request.get("code"), str):
            self.channel.refuse("code is not a string", id)
        elif op == "execute":
            why = overrides.check(request)
            if why:
                self.channel.refuse(why, id)
            else:
                self.execute(id, request["code"], request.get("env"), request.get("cwd"))
        elif op == "check":
            self.check(id, request["code"], request.get("data") is True)
        elif op == "reset":
            self.reset(id)
        elif op == "fork":
            self.fork(id)
        elif op in ("complete", "inspect"):
            cursor = request.get("cursor")
            if type(cursor) is not int or not 0 <= cursor <= len(request["code"]):
                self.channel.refuse("cursor is not a place in the code", id)
            else:
                self.look(op, id, request["code"], cursor)
        elif op == "input":
            self.channel.refuse("no execution waits for input", id)
        else:
            self.channel.refuse("no such op", id)

    def execute(self, id, code, env=None, cwd=None):
        self.id, self.count, self.unread = id, self.count + 1, ""
        self.shield.fired = False
        signal.signal(signal.SIGINT, self.shield.on_signal)  # a previous cell may have replaced it
        if self.user_site and sys.path_importer_cache.get(self.user_site, self) is None:
            del sys.path_importer_cache[self.user_site]  # it may exist now
        self.send_word("started", "count", self.count)
        former = overrides.save(env, cwd, self.cwd) if env or cwd else None
        _, error = self.shield.guarded(self.run, code, env, cwd)
        _, late = self.shield.guarded(self.show_figures)
        error = error if error is not None else late
        if os.getpid() != self.pid:
            self.end_child(error)
        if former:
            overrides.restore(*former)
        self.restore_streams()
        self.shield.guarded(self.flush)
        status = "ok"
        if error is not None:
            status = "interrupted" if isinstance(error, KeyboardInterrupt) and self.shield.fired else "error"
            self.report(error)
            error = late = None  # their frames hold the objects of the cell
            self.shield.guarded(self.flush)
        self.send_word("finished", "status", f'"{status}"')
        self.id = None

    def check(self, id, code, data):
        """Runs no code of the user. Nothing of the session changes."""
        try:
            report = wire.clean(check.examine(code, data))
        except Exception as error:
            self.channel.refuse(f"check: {type(error).__name__}", id)
        else:
            with self.shield:
                self.channel.send({"event": "report", "id": id, "report": report})

    def run(self, code, env, cwd):
        overrides.apply(env, cwd)
        value = cell.run(code, f"<cell {self.count}>", self.main.__dict__, self.run_coroutine)
        if value is None or self.channel.fd < 0:
            return
        builtins._ = value
        bundle = rich.bundle_of(value)
        if bundle.data or bundle.omitted:
            if any(value is figure for figure in figures.open_figures()):
                self.figures_shown.append(value)
            self.flush()
            self.send("result", count=self.count, **bundle.fields())

    def run_coroutine(self, coroutine):
        import asyncio
        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(coroutine)
        try:
            return self.loop.run_until_complete(task)
        except KeyboardInterrupt as interrupt:
            if task.done():
                task.cancelled() or task.exception()
                raise
            task.cancel()  # so that its `finally` runs now, and its frames show where it was
            try:
                self.loop.run_until_complete(task)
            except asyncio.CancelledError as cancelled:
                interrupt.__traceback__ = cancelled.__traceback__
                raise interrupt from None
            raise

    def restore_streams(self):
        for name, stream in zip(("stdout", "stderr"), self.streams):
            if getattr(sys, name, None) is None or getattr(getattr(sys, name), "closed", False) is True:
                if stream.closed:
                    stream = open(1 if name == "stdout" else 2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
                setattr(sys, name, stream)
        self.streams = tuple(getattr(sys, n) if s.closed else s for n, s in zip(("stdout", "stderr"), self.streams))

    def look(self, op, id, code, cursor):
        """Completion and inspection run __dir__ and __getattr__ of user code, so they are guarded
        like a cell."""
        from covekernel import complete
        self.id = id
        function = complete.complete if op == "complete" else complete.inspect_at
        fields, error = self.shield.guarded(function, code, cursor, self.main.__dict__)
        if error is not None:
            fields = {"matches": [], "start": cursor, "end": cursor} if op == "complete" else {"found": False, "data": {}}
        self.shield.guarded(self.flush)
        self.send("completions" if op == "complete" else "inspection", **fields)
        self.id = None

    # --- fork ---

    def fork(self, id):
        """The reply is sent on the socket of the copy, by the copy or on its behalf; nothing is
        sent here."""
        fds = self.channel.take_given()
        if fds is None:
            self.channel.refuse("a fork comes with three descriptors", id)
            return
        parent = self.pid
        self.twin = fds
        try:
            why = twin.threads() or twin.fork()
        except OSError as error:
            why = twin.FULL if error.errno == errno.EAGAIN else f"fork: {error.strerror}"
        except Exception as error:
            why = f"fork: {error}"
        if os.getpid() == parent:
            self.twin = None
            twin.refuse(fds, why)
            return
        reseed()
        self.loop = twin.own_loop(self.loop)
        self.channel.write(READY)

    # --- reset ---

    def reset(self, id):
        """As after a restart, but in the same process: threads of user code and installed modules
        stay."""
        self.id = id
        self.shield.fired = False
        _, error = self.shield.guarded(self.forget)
        self.fresh_namespace()
        self.count = 0
        self.shield.guarded(self.flush)
        self.send("finished", status="interrupted" if isinstance(error, KeyboardInterrupt) else "ok")
        self.id = None

    def forget(self):
        figures.close_all()
        if self.loop is not None:
            self.loop.close()
            self.loop = None
        environ, path, argv = self.start
        os.chdir(self.cwd)
        for name in set(os.environ) - set(environ):
            del os.environ[name]
        os.environ.update(environ)
        sys.path[:], sys.argv[:] = path, argv
        for name, module in list(sys.modules.items()):
            if module is not self.main and written_here(module):
                sys.modules.pop(name, None)
        importlib.invalidate_caches()
        cell.forget()
        self.main.__dict__.clear()
        gc.collect()


def written_here(module):
    """Whether the module is the user's own, which may have changed since; system modules are not
    loaded again."""
    path = getattr(module, "__file__", None)
    if not isinstance(path, str) or path.startswith(cell.HERE):
        return False
    return not any(path.startswith(prefix + os.sep) for prefix in {sys.prefix, sys.base_prefix, sys.exec_prefix})


def display(*objects, raw=False, metadata=None, **_):
    """Shows objects in every representation that they offer; with raw=True each object is itself a
    map of MIME types."""
    if current is None:
        for obj in objects:
            print(repr(obj))
        return
    for obj in objects:
        bundle = rich.raw_bundle(obj, metadata) if raw and isinstance(obj, dict) else rich.bundle_of(obj)
        if any(obj is figure for figure in figures.open_figures()):
            current.figures_shown.append(obj)
        current.show(bundle)
