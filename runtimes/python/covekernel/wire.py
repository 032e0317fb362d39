"""wire.py - JSON lines on the kernel socket.

Both sides have the same bounds: a line is at most 1 MiB with its newline, nested at most 32 deep.
Values that a cell shows may be larger, deeper or not JSON, so every value is cleaned before it is
sent, and an entry that does not fit is omitted and named. Invariants: a line is written completely
or not at all, whichever signal arrives (the session holds interrupts back meanwhile); only the main
thread reads.

Three descriptors come with a fork request; they are kept until it is handled.

In a new process the caches are cold for its first reply, so the usual lines take few steps: the
depth of a request without many brackets is not computed, small events are formatted by hand, and
messages that are not urgent (`defer`) are sent with the next line.
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
READ_FIRST, READ_MORE = 4 << 10, 64 << 10  # a large buffer must be requested from the system
DEPTH_MAX = 32
VALUE_DEPTH = DEPTH_MAX - 4  # a value is below the event, its data, and the entry
TEXT_KEEP = 256 << 10  # bytes kept of a text/plain that is too long
INT_MAX = (1 << 63) - 1
GIVEN = 3  # descriptors that come with a fork request
GIVEN_SPACE = _socket.CMSG_SPACE(4 * GIVEN)
STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"')
BRACKETS = re.compile(r"[\[\]{}]")
quote = json.encoder.encode_basestring_ascii  # str as JSON
scan = json.scanner.make_scanner(json.JSONDecoder())


class Unfit(Exception):
    """A value that no line can carry; the text is the reason."""


def clean_text(text):
    """Text that every JSON reader accepts: no unpaired surrogates and no NUL."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")


def clean(value, depth=VALUE_DEPTH):
    """The value as strict JSON. Exact types first: a subclass of str may have a hostile method."""
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
    """The maximum depth of the brackets in a line, without parsing it."""
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
    """json.loads() of a line that is already stripped."""
    try:
        value, end = scan(text, 0)
    except StopIteration:
        end = None
    return value if end == len(text) else json.loads(text)  # which reports the error


def fit(event):
    """The line of an event, cut to LINE_MAX: the largest entries of its data are removed first, and
    named in `omitted`."""
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
        self.socket = None  # the same as fd, for messages with descriptors
        self.bell = None  # a pipe, once a cell waits for input
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
        """False if there is no reader any more, or if user code forked this process."""
        return self.write(fit(event))

    def write(self, line=b""):
        """As send(), for a complete line; deferred lines are sent first."""
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
        """In a forked child: the socket belongs to the parent alone."""
        fd, self.fd, self.deferred = self.fd, -1, b""
        self.lock = threading.RLock()
        if fd >= 0:
            self.socket.close()

    def fill(self, flags=_socket.MSG_DONTWAIT):
        """Reads what has arrived; without flags it waits for data."""
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
            self.lines.append(data)  # one complete line, as almost always
            return
        while data:
            part, newline, data = data.partition(b"\n")
            if not self.dropping:
                self.buffer += part
            if len(self.buffer) >= LINE_MAX:
                self.buffer.clear()
                self.dropping = True
            if newline:
                if self.dropping or self.buffer:  # empty lines are ignored
                    self.lines.append(None if self.dropping else bytes(self.buffer))
                self.buffer.clear()
                self.dropping = False

    def take_given(self):
        """The descriptors of a fork request; None if it came without them."""
        taken, self.given = self.given[:GIVEN], self.given[GIVEN:]
        if len(taken) == GIVEN:
            return taken
        for fd in taken:
            os.close(fd)
        return None

    def wait(self):
        """Blocks until a line may be there. An interrupt can raise here, and only here, without
        losing a byte. A signal that arrives after Python has checked for signals and before it
        blocks would be handled only with the next line, so every signal also writes to a pipe
        that is polled here."""
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
        """Returns a request, or None after it was refused."""
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
