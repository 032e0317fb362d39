# Written by tools/unasync.py from _async/files.py: change that.
"""The files of a sandbox. A path is absolute, as the sandbox sees it, or relative to /workspace."""
from __future__ import annotations

import os
from typing import Any, Iterable, Iterator, Dict, Optional, Union

from .. import _sio
from .._call import NDJSON, SILENCE, Body, Call, event_error, path as url
from .._error import CoveError
from .._json import Duration, decode, loads_object, milliseconds, without_none
from .._local import AtomicFile, Content, DownloadResult, LocalPath, file_body
from ..errors import NotFoundError, PreconditionFailedError
from ..events import FileEvent
from ..models import FileEntry, FileUrl, WriteResult
from ._http import HTTP, LineStream

READ_MAX = 64 << 20
"""Bytes that `read` and `read_bytes` hold in memory, unless the caller allows more."""


class Files:
    """The files of a sandbox.

        sandbox.files.write("in/data.csv", "a,b\\n1,2\\n")
        print(sandbox.files.read("in/data.csv"))

    A path is absolute, or relative to /workspace. Missing directories of a path that is written are
    created, unless `parents` is false.
    """

    def __init__(self, http: HTTP, sandbox_id: str) -> None:
        self._http = http
        self._sandbox_id = sandbox_id

    def _path(self, *more: str) -> str:
        return url("v1", "sandboxes", self._sandbox_id, "files", *more)

    # --- contents ---

    def read(self, path: str, *, encoding: str = "utf-8", errors: str = "strict", max_bytes: int = READ_MAX) -> str:
        """The file as text; `encoding` and `errors` are those of `open`. Other contents are read
        with `read_bytes`, files of more than `max_bytes` with `stream` or `download`."""
        return (self.read_bytes(path, max_bytes=max_bytes)).decode(encoding, errors)

    def read_bytes(self, path: str, *, offset: int = 0, length: Optional[int] = None, max_bytes: int = READ_MAX) -> bytes:
        """The file, or `length` bytes of it from `offset` on. More than `max_bytes` are not held in
        memory: ValueError is raised."""
        pieces, size = [], 0
        stream = self.stream(path, offset=offset, length=length)
        try:
            for piece in stream:
                size += len(piece)
                if size > max_bytes:
                    raise ValueError(f"{path}: has more than {max_bytes} bytes; use files.stream or files.download, or give a larger max_bytes")
                pieces.append(piece)
        finally:
            stream.close()
        return b"".join(pieces)

    def stream(self, path: str, *, offset: int = 0, length: Optional[int] = None) -> _sio.ByteStream:
        """The file in pieces; its size is not limited.

        After a broken connection the stream continues at the same byte; if the file has changed
        meanwhile, PreconditionFailedError is raised. The download of a file without an entity tag
        is not continued.
        """
        if length == 0:
            return
        end = offset + length if length is not None else None
        etag: Optional[str] = None
        begun = False
        attempts = self._http.attempts()
        while True:
            try:
                headers = {}
                if offset or end is not None:
                    headers["Range"] = f"bytes={offset}-{'' if end is None else end - 1}"
                if etag is not None:
                    headers["If-Range"] = etag
                response = self._http.open(Call("GET", self._path(), {"path": path}, headers=headers))
                if etag is not None and response.headers.get("ETag") != etag:
                    response.close()
                    raise PreconditionFailedError(f"{path} changed while it was being read")
                etag = response.headers.get("ETag")
                chunks = self._http.chunks(response)
                try:
                    for chunk in chunks:
                        begun = True
                        offset += len(chunk)
                        attempts.record_success()
                        yield chunk
                finally:
                    chunks.close()
                return
            except CoveError as error:
                if begun and etag is None:  # the rest could belong to another content
                    raise
                self._http.again(attempts, error, f"GET {path}")

    def write(self, path: str, content: Union[Content, Iterable[bytes]], *, parents: bool = True, mode: Optional[int] = None,
                    exclusive: bool = False) -> WriteResult:
        """Writes a file from a text, bytes, an open file, or pieces of bytes. The file appears
        complete or not at all.

        Args:
            parents: create missing directories; otherwise they are an error.
            mode: permission bits; default: 0o644.
            exclusive: refuse to replace an existing file.
        """
        return self._put(path, _sio.body_of(content), parents, mode, exclusive)

    def _put(self, path: str, body: Union[bytes, Body], parents: bool, mode: Optional[int], exclusive: bool) -> WriteResult:
        query = {"path": path, "parents": parents, "mode": f"{mode:04o}" if mode is not None else None}
        headers = {"Content-Type": "application/octet-stream", **({"If-None-Match": "*"} if exclusive else {})}
        return self._http.get(WriteResult, Call("PUT", self._path(), query, body=body, headers=headers, repeatable=not exclusive))

    def upload(self, local: LocalPath, path: str, *, parents: bool = True, mode: Optional[int] = None) -> WriteResult:
        """Streams a local file into the sandbox. Its permission bits are kept unless `mode` is
        given."""
        name = os.fspath(local)
        body = _sio.blocking(file_body, name)
        return self._put(path, body, parents, (os.stat(name).st_mode & 0o777) if mode is None else mode, False)

    def download(self, path: str, local: LocalPath) -> DownloadResult:
        """Streams a file of the sandbox into a local file, which appears complete or not at all."""
        landing = _sio.blocking(AtomicFile, os.fspath(local))
        try:
            for piece in self.stream(path):
                _sio.blocking(landing.write, piece)
            return _sio.blocking(landing.keep)
        finally:
            _sio.blocking(landing.discard)

    # --- whole directories ---

    def upload_directory(self, local: LocalPath, path: str) -> WriteResult:
        """Copies the contents of a local directory into a directory of the sandbox, which is
        created if missing."""
        from .._archive import directory_body

        body = _sio.blocking(directory_body, os.fspath(local))
        self.mkdir(path)
        call = Call("PUT", self._path("tar"), {"path": path}, body=body, headers={"Content-Type": "application/x-tar"})
        return self._http.get(WriteResult, call)

    def download_directory(self, path: str, local: LocalPath) -> DownloadResult:
        """Copies the contents of a directory of the sandbox into a local directory, which is
        created if missing.

        The contents of a sandbox are not trusted: nothing is written outside of the local
        directory; links that point out of it are omitted and listed in `skipped`.
        """
        import tempfile

        from .._archive import unpack

        attempts = self._http.attempts()
        while True:
            with tempfile.TemporaryFile() as spool:  # an archive that ends early then leaves no partial result
                try:
                    for chunk in self._http.chunks(self._http.open(Call("GET", self._path("tar"), {"path": path}))):
                        _sio.blocking(spool.write, chunk)
                except CoveError as error:
                    self._http.again(attempts, error, f"GET {path}")
                    continue
                spool.seek(0)
                return _sio.blocking(unpack, spool, os.fspath(local))

    # --- changes ---

    def watch(self, path: str = "/workspace", *, recursive: bool = False) -> Watch:
        """Reports changes of files from the moment at which the block is entered or the first event
        is requested.

            with sandbox.files.watch("/workspace", recursive=True) as events:
                for event in events:
                    print(event.type, event.path)

        The iteration ends when the path is removed; when the sandbox ends, its error is raised. A
        watch does not reset the idle timeout.
        """
        return Watch(self._http, Call("GET", self._path("watch"), {"path": path, "recursive": recursive or None}, headers={"Accept": NDJSON},
                                           read_timeout=SILENCE))

    # --- names ---

    def sign(self, path: str, *, method: str = "GET", ttl: Optional[Duration] = None) -> FileUrl:
        """A URL that reads ("GET") or writes ("PUT") this file without a key for `ttl` seconds."""
        body = {"path": path, "method": method, **without_none(ttlMs=None if ttl is None else milliseconds(ttl))}
        return self._http.get(FileUrl, Call("POST", self._path("sign"), json=body, repeatable=False))

    def list(self, path: str = "/workspace") -> Iterator[FileEntry]:
        """The entries of a directory, sorted by the bytes of their names. A page of 1000 is fetched
        when its first entry is needed."""
        for entry in self._http.pages(FileEntry, Call("GET", self._path("list"), {"path": path})):
            yield entry

    def stat(self, path: str) -> FileEntry:
        """The attributes of a path. A link is reported as a link."""
        return self._http.get(FileEntry, Call("GET", self._path("stat"), {"path": path}))

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except NotFoundError as error:
            if error.code != "not_found":  # the sandbox itself does not exist any more
                raise
            return False
        return True

    def mkdir(self, path: str, *, parents: bool = True, exclusive: bool = False) -> None:
        """Creates a directory. An existing directory is accepted unless `exclusive`."""
        body = without_none(path=path, parents=parents, exclusive=exclusive or None)
        self._http.send(Call("POST", self._path("mkdir"), json=body, repeatable=not exclusive))

    def move(self, source: str, target: str, *, parents: bool = True, exclusive: bool = False) -> None:
        """Renames a file or a directory. `exclusive` refuses to replace an existing path."""
        body = {"from": source, "to": target, **without_none(parents=parents, exclusive=exclusive or None)}
        self._http.send(Call("POST", self._path("move"), json=body, repeatable=False))

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """Removes a file or an empty directory; with `recursive`, a directory with its contents."""
        self._http.send(Call("DELETE", self._path(), {"path": path, "recursive": recursive or None}, done_if=(NotFoundError,)))


class Watch:
    """Changes of files, as they happen.

    After a broken connection the watch reconnects. Changes in between are lost, so an event of type
    "overflow" is reported: list the directory again.
    """

    def __init__(self, http: HTTP, call: Call) -> None:
        self._http = http
        self._call = call
        self._attempts = http.attempts()
        self._lines = LineStream(http)
        self._started = False
        self._closed = False

    def __enter__(self) -> Watch:
        if not self._started:
            self._next()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> FileEvent:
        while not self._closed:
            event = self._next()
            if event is not None:
                return event
        raise StopIteration

    def close(self) -> None:
        """Stops watching."""
        self._closed = True
        self._lines.drop()

    def _next(self) -> Optional[FileEvent]:
        """The next event; None if the line was not an event."""
        while True:
            try:
                if not self._lines.is_open:
                    self._lines.open(self._call)
                message = loads_object(self._lines.next())
            except CoveError as error:
                self._lines.drop()
                self._http.again(self._attempts, error, "watch")
                continue
            self._attempts.record_success()
            return self._take(message)

    def _take(self, message: Dict[str, Any]) -> Optional[FileEvent]:
        kind = message.get("type")
        if kind == "watching":
            again, self._started = self._started, True
            return FileEvent("overflow") if again else None
        if kind == "end":
            self.close()
            if message.get("error"):
                raise event_error(message["error"])
            return None
        return decode(FileEvent, message) if kind in ("created", "modified", "removed", "moved", "overflow") else None
