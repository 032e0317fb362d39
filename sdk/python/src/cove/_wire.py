"""HTTP/1.1 on the side of the client, without I/O: the head of a request, the parser of an answer.

A request is one block of bytes, and its body follows with the length that the head announces, or in
chunks. An answer is fed to `AnswerParser` as it arrives; a server that breaks the protocol raises
WireError. No redirect is followed and no encoding is undone, as the package asks for neither.
"""
from __future__ import annotations

import re
from typing import Iterable, List, Mapping, Optional, Tuple

HEAD_MAX = 64 << 10
CHUNK_LINE_MAX = 1024
NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]|[^\x00-\xff]")
STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: .*)?", re.DOTALL)
CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?", re.DOTALL)


class WireError(ValueError):
    """The server broke the protocol, or the connection ended before the answer did."""


class Headers:
    """The headers of an answer; names are compared without case, and repeated values are joined."""

    def __init__(self, pairs: Iterable[Tuple[str, str]] = ()) -> None:
        self._values: dict[str, str] = {}
        for name, value in pairs:
            name = name.lower()
            self._values[name] = f"{self._values[name]}, {value}" if name in self._values else value

    def get(self, name: str) -> Optional[str]:
        return self._values.get(name.lower())

    def words(self, name: str) -> List[str]:
        """The lower-case elements of a list such as that of Connection."""
        return [word.strip() for word in (self.get(name) or "").lower().split(",") if word.strip()]


def request_head(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1"]
    for name, value in headers.items():
        if FORBIDDEN.search(value):
            raise ValueError(f"{name}: {value!r} has a character that a header cannot hold; use printable ASCII")
        lines.append(f"{name}: {value}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def chunk_of(piece: bytes) -> bytes:
    """A piece of a body whose length is not known in advance; an empty piece would end the body."""
    return b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b""


LAST_CHUNK = b"0\r\n\r\n"


class AnswerParser:
    """One answer. `feed` takes received bytes, b"" at the end of the connection, and returns pieces
    of the body."""

    def __init__(self, method: str) -> None:
        self.status = 0
        """0 until the head is complete."""
        self.headers = Headers()
        self.ended = False
        self.keeps = False
        """Whether the connection can carry another request after the end."""
        self._method = method
        self._buffer = b""
        self._left: Optional[int] = None  # bytes to come of the body or of the chunk; None: all until the connection ends
        self._chunked = False
        self._chunk_state = "size"  # size, data, end, trailer

    def feed(self, data: bytes) -> List[bytes]:
        pieces: List[bytes] = []
        at_end = not data
        self._buffer += data
        while not self.ended:
            if not (self._read_body(pieces) if self.status else self._read_head()):
                break
        if self.ended:
            self.keeps = self.keeps and not self._buffer and not at_end
        elif at_end:
            if not self.status or self._chunked or self._left is not None:
                raise WireError("the connection ended before the answer was complete")
            self.ended = True
        return pieces

    # Each step returns whether another step may follow with the bytes that are buffered.

    def _read_head(self) -> bool:
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if len(head) > HEAD_MAX:
            raise WireError("the head of the answer is too long")
        if not found:
            return False
        first, *lines = head.split(b"\r\n")
        status = STATUS_LINE.fullmatch(first)
        if status is None:
            raise WireError(f"the server does not speak HTTP: {first[:60]!r}")
        self._buffer = rest
        if status[2].startswith(b"1"):
            if status[2] == b"101":
                raise WireError("the server changed the protocol, which was not requested")
            return True
        headers = Headers(header_of(line) for line in lines)
        self.status, self.headers = int(status[2]), headers
        connection = headers.words("Connection")
        self.keeps = "close" not in connection and (status[1] == b"1" or "keep-alive" in connection)
        self._take_framing()
        return True

    def _take_framing(self) -> None:
        if self._method == "HEAD" or self.status in (204, 304):
            self.ended = True
        elif self.headers.get("Transfer-Encoding") is not None:
            if self.headers.words("Transfer-Encoding") != ["chunked"]:
                raise WireError(f"the answer has an unknown Transfer-Encoding: {self.headers.get('Transfer-Encoding')!r}")
            self._chunked = True
        elif self.headers.get("Content-Length") is not None:
            lengths = self.headers.words("Content-Length")
            if len({*lengths}) != 1 or not re.fullmatch("[0-9]{1,18}", lengths[0]):
                raise WireError(f"the answer has an invalid Content-Length: {self.headers.get('Content-Length')!r}")
            self._left = int(lengths[0])
            self.ended = self._left == 0
        else:
            self.keeps = False

    def _read_body(self, pieces: List[bytes]) -> bool:
        if self._chunked and self._chunk_state != "data":
            return self._read_chunk_line()
        piece = self._buffer if self._left is None else self._buffer[:self._left]
        self._buffer = self._buffer[len(piece):]
        if piece:
            pieces.append(piece)
        if self._left is None:
            return False
        self._left -= len(piece)
        if self._left:
            return False
        if self._chunked:
            self._chunk_state = "end"
        else:
            self.ended = True
        return True

    def _read_chunk_line(self) -> bool:
        line, found, rest = self._buffer.partition(b"\r\n")
        if len(line) > CHUNK_LINE_MAX:
            raise WireError("a line between two chunks of the answer is too long")
        if not found:
            return False
        self._buffer = rest
        if self._chunk_state == "end":
            if line:
                raise WireError("a chunk of the answer is longer than announced")
            self._chunk_state = "size"
        elif self._chunk_state == "trailer":
            self.ended = not line
        else:
            size = CHUNK_LINE.fullmatch(line)
            if size is None:
                raise WireError(f"the answer has an invalid chunk: {line[:60]!r}")
            self._left = int(size[1], 16)
            self._chunk_state = "data" if self._left else "trailer"
        return True


def header_of(line: bytes) -> Tuple[str, str]:
    name, found, value = line.decode("latin-1").partition(":")
    if not found or not NAME.fullmatch(name):
        raise WireError(f"the answer has an invalid header: {line[:60]!r}")
    return name, value.strip(" \t")
