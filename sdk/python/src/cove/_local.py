"""Local files: bodies that are read from them, and files that are downloaded."""
from __future__ import annotations

import contextlib
import dataclasses
import io
import os
from typing import IO, Any, Iterable, Iterator, List, Tuple, Union

from ._call import Body

PIECE = 256 << 10
LocalPath = Union[str, "os.PathLike[str]"]
Content = Union[str, bytes, bytearray, memoryview, IO[bytes], Iterable[bytes]]


def read_all(file: IO[bytes]) -> Iterator[bytes]:
    while True:
        piece = file.read(PIECE)
        if not piece:
            return
        yield piece


def body_of(content: Content) -> Union[bytes, Body]:
    """The body to send. A seekable file is sent from its current position, and again from there for
    a repeated attempt."""
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, (bytes, bytearray, memoryview)):
        return bytes(content)
    if not hasattr(content, "read"):
        iterable: Iterable[bytes] = content
        return Body(lambda: iter(iterable), None, repeatable=isinstance(content, (list, tuple)))
    file: Any = content
    try:
        start = file.tell()
        end = file.seek(0, io.SEEK_END)
        file.seek(start)
    except (AttributeError, OSError, ValueError):
        return Body(lambda: read_all(file), None, repeatable=False)

    def again() -> Iterator[bytes]:
        file.seek(start)
        return read_all(file)

    return Body(again, end - start)


def file_body(path: str) -> Body:
    """A file that is opened again for each attempt. If it grows meanwhile, only its original length
    is sent; if it shrinks, the call fails."""
    size = os.stat(path).st_size

    def pieces() -> Iterator[bytes]:
        with open(path, "rb") as f:
            yield from exactly(f, size, path)

    return Body(pieces, size)


def exactly(file: IO[bytes], size: int, path: str) -> Iterator[bytes]:
    left = size
    while left > 0:
        piece = file.read(min(PIECE, left))
        if not piece:
            raise OSError(f"{path} became smaller while it was being read")
        left -= len(piece)
        yield piece


@dataclasses.dataclass(frozen=True)
class DownloadResult:
    """The files that a download wrote. `skipped` has (name, reason) of each member that was
    refused."""

    path: str
    files: int
    size_bytes: int
    skipped: List[Tuple[str, str]] = dataclasses.field(default_factory=list)


class AtomicFile:
    """A file that appears complete or not at all."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.size = 0
        import tempfile

        self.file = tempfile.NamedTemporaryFile(dir=os.path.dirname(os.path.abspath(path)), prefix=".cove-", delete=False)

    def write(self, piece: bytes) -> None:
        self.size += len(piece)
        self.file.write(piece)

    def keep(self) -> DownloadResult:
        self.file.close()
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(self.file.name, 0o666 & ~mask)
        os.replace(self.file.name, self.path)
        return DownloadResult(self.path, 1, self.size)

    def discard(self) -> None:
        self.file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.file.name)
