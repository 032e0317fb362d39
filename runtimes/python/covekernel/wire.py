"""wire.py - JSON lines on the kernel socket.

Both ends are held to the same bounds: a line is at most 1 MiB with its newline, nested at most 32 deep. What a cell
shows may be larger, deeper or no JSON at all, so every value is cleaned before it is sent and the entry that does not
fit is left out and named. Invariants: a line is written whole or not at all, whichever signal arrives (the session
holds interrupts back around it); only the main thread reads.

With the order to fork come three descriptors, which are kept until it is served.

The first answer of a fresh process is what its caches are cold for, so the usual lines take few steps: a request without
deep brackets is not searched for its depth, small events are put together by hand, and what is said before anybody
needs it (`defer`) goes out with the next line.
"""
import _signal
import _socket
import collections
import json
import json.encoder
import json.scanner
import math
import os
import re
import select
import threading

LINE_MAX = 1 << 20
READ_FIRST, READ_MORE = 4 << 10, 64 << 10  # a large buffer has to be asked of the system
DEPTH_MAX = 32
VALUE_DEPTH = DEPTH_MAX - 4  # the event, its data, and the entry stand above a value
TEXT_KEEP = 256 << 10  # what is left of a text/plain that is too long
INT_MAX = (1 << 63) - 1
GIVEN = 3  # descriptors that come with the order to fork
GIVEN_SPACE = _socket.CMSG_SPACE(4 * GIVEN)
STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"')
BRACKETS = re.compile(r"[\[\]{}]")
quote = json.encoder.encode_basestring_ascii  # str as JSON
scan = json.scanner.make_scanner(json.JSONDecoder())


class Unfit(Exception):
    """A value that no line can carry; the text says why."""


def clean_text(text):
    """Text that every JSON reader takes: no half of a surrogate pair and no NUL."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")


def clean(value, depth=VALUE_DEPTH):
    """A value as strict JSON has it. Exact types first: a subclass of str may have a hostile method."""
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        return clean_text(value)
    if kind is int:
        return value if -INT_MAX <= value <= INT_MAX else str(value)
    if kind is float:
        return value if math.isfinite(value) else None
    if depth == 0:
        raise Unfit(f"nested deeper than {VALUE_DEPTH}")
    if isinstance(value, dict):
        return {clean_text(k if type(k) is str else str(k)): clean(v, depth - 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(v, depth - 1) for v in value]
    if isinstance(value, str):
        return clean_text(str.__str__(value))
    if isinstance(value, int):
        return clean(int(value))
    if isinstance(value, float):
        return clean(float(value))
    raise Unfit(f"{kind.__name__} is not JSON")


def depth_of(text):
    """How deep the brackets of a line go at most, without building what they hold."""
    if text.count("{") + text.count("[") <= DEPTH_MAX:
        return 0
    deepest = depth = 0
    for c in BRACKETS.findall(STRINGS.sub("", text)):
        depth += 1 if c in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def size_text(size):
    return f"{size / (1 << 20):.1f} MiB" if size >= 100 << 10 else f"{size} bytes"


def loads(text):
    """json.loads() of a line, whose blanks have been stripped."""
    try:
        value, end = scan(text, 0)
    except StopIteration:
        end = None
    return value if end == len(text) else json.loads(text)  # which says what is wrong


def fit(event):
    """The line of an event, cut to LINE_MAX: the largest entries of its data go first, and are named in `omitted`."""
    data, omitted = event.get("data"), dict(event.get("omitted") or {})
    if data is not None:
        data = {mime: json.dumps(value) for mime, value in data.items()}
    while True:
        head = {k: v for k, v in event.items() if k not in ("data", "omitted")}
        if omitted:
            head["omitted"] = omitted
        line = json.dumps(head)
        if data is not None:
            body = ", ".join(f"{json.dumps(mime)}: {text}" for mime, text in data.items())
            line = f'{line[:-1]}, "data": {{{body}}}}}'
        if len(line) < LINE_MAX:
            return line.encode() + b"\n"
        if not data:
            return (json.dumps({k: event[k] for k in ("event", "id", "count", "name") if k in event} |
                               {"omitted": {"event": f"{size_text(len(line))} is more than a line of 1 MiB"}}) + "\n").encode()
        worst = max(data, key=lambda mime: len(data[mime]))
        text = event["data"][worst]
        if worst == "text/plain" and len(text) > TEXT_KEEP // 6:
            keep = text[:TEXT_KEEP // 6]
            event["data"][worst] = keep + f"\n... cut here: {len(text)} characters are more than fit into a line"
            data[worst] = json.dumps(event["data"][worst])
        else:
            omitted[worst] = f"{size_text(len(data.pop(worst)))} is more than a line of 1 MiB"


class Channel:
    def __init__(self, fd):
        self.fd = fd
        self.lock = threading.RLock()
        self.buffer = bytearray()
        self.dropping = False  # inside a line that is too long
        self.lines = collections.deque()
        self.given = []  # descriptors that came with a line
        self.closed = False
        self.deferred = b""
        self.read_size = READ_FIRST
        self.socket = None  # the same, for what comes with descriptors
        self.bell = None  # a pipe, once somebody waits for input
        if fd >= 0:
            self.open(fd)

    def open(self, fd):
        os.set_inheritable(fd, False)
        self.socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd)
        if _socket.getdefaulttimeout() is not None:  # user code has set it, for its own sockets
            self.socket.settimeout(None)

    def defer(self, line):
        self.deferred += line

    def send(self, event):
        """False when nobody listens any more, or when this is a process that user code forked."""
        return self.write(fit(event))

    def write(self, line=b""):
        """The same, for what is a line already; with what was deferred before it."""
        with self.lock:
            if self.deferred:
                line, self.deferred = self.deferred + line, b""
            while line and self.fd >= 0:
                try:
                    n = os.write(self.fd, line)
                    line = b"" if n == len(line) else memoryview(line)[n:]
                except BlockingIOError:
                    select.select([], [self.fd], [])
                except OSError:
                    self.closed = True
                    return False
            return self.fd >= 0

    def refuse(self, why, id=None):
        self.send({"event": "refused", "id": id, "why": why})

    def forget(self):
        """In a forked child: the socket is the parent's alone."""
        fd, self.fd, self.deferred = self.fd, -1, b""
        self.lock = threading.RLock()
        if fd >= 0:
            self.socket.close()

    def fill(self, flags=_socket.MSG_DONTWAIT):
        """Reads what has arrived; without flags it waits until something has."""
        try:
            data, given, _, _ = self.socket.recvmsg(self.read_size, GIVEN_SPACE, flags | _socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            data, given = b"", ()
        self.read_size = READ_MORE if len(data) == self.read_size else READ_FIRST
        for level, kind, content in given:
            if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
                self.given += memoryview(content[:len(content) & ~3]).cast("i").tolist()
        if not data:
            self.closed = True
            return
        self.take(data)

    def take(self, data):
        if not self.buffer and not self.dropping and data.find(b"\n") == len(data) - 1 > 0:
            self.lines.append(data)  # one whole line, as nearly always
            return
        while data:
            part, newline, data = data.partition(b"\n")
            if not self.dropping:
                self.buffer += part
            if len(self.buffer) >= LINE_MAX:
                self.buffer.clear()
                self.dropping = True
            if newline:
                if self.dropping or self.buffer:  # an empty line says nothing
                    self.lines.append(None if self.dropping else bytes(self.buffer))
                self.buffer.clear()
                self.dropping = False

    def take_given(self):
        """The descriptors of an order to fork; None when it came without."""
        taken, self.given = self.given[:GIVEN], self.given[GIVEN:]
        if len(taken) == GIVEN:
            return taken
        for fd in taken:
            os.close(fd)
        return None

    def wait(self):
        """Blocks until a line may be there. An interrupt can raise here, and only here, without losing a byte. One that comes
        when Python has looked for signals and the kernel does not wait yet would be heard with the next line only, so every
        signal also rings a bell that is waited for."""
        if self.bell is None:
            self.bell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        before = _signal.set_wakeup_fd(self.bell[1], warn_on_full_buffer=False)
        try:
            poll = select.poll()
            poll.register(self.fd, select.POLLIN)
            poll.register(self.bell[0], select.POLLIN)
            poll.poll()
        finally:
            try:
                _signal.set_wakeup_fd(before)
            except (OSError, ValueError):  # of user code, which has closed it since
                _signal.set_wakeup_fd(-1)
        try:
            os.read(self.bell[0], 4096)
        except BlockingIOError:
            pass

    def parse(self, line):
        """A request, or None after it was refused."""
        if line is None:
            self.refuse(f"a line is longer than {LINE_MAX} bytes")
            return None
        try:
            text = line.decode("utf-8").strip(" \t\r\n")
            if depth_of(text) > DEPTH_MAX:
                raise ValueError(f"nested deeper than {DEPTH_MAX}")
            request = loads(text)
        except (ValueError, RecursionError) as error:
            self.refuse(f"not JSON: {error}")
            return None
        if not isinstance(request, dict):
            self.refuse("not an object")
            return None
        id = request.get("id")
        if not isinstance(id, str) or not 0 < len(id) <= 64:
            self.refuse("id is not a string of 1 to 64 characters")
            return None
        return request
