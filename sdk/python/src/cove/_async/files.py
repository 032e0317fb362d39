"""The files of a sandbox. A path is absolute, as the sandbox sees it, or relative to /workspace."""
from __future__ import annotations

import os
from typing import Any, AsyncIterable, AsyncIterator, Dict, Optional, Union

from .. import _aio
from .._call import NDJSON, SILENCE, Body, Call, event_error, path as url
from .._error import CoveError
from .._json import Duration, decode, loads_object, milliseconds, without_none
from .._local import AtomicFile, Content, DownloadResult, LocalPath, file_body
from ..errors import NotFoundError, PreconditionFailedError
from ..events import FileEvent
from ..models import FileEntry, FileUrl, WriteResult
from ._http import AsyncHTTP, AsyncLineStream

READ_MAX = 64 << 20
"""Bytes that `read` and `read_bytes` hold in memory, unless the caller allows more."""


class AsyncFiles:
    """The files of a sandbox.

        await sandbox.files.write("in/data.csv", "a,b\\n1,2\\n")
        print(await sandbox.files.read("in/data.csv"))

    A path is absolute, or relative to /workspace. Missing directories of a path that is written are
    created, unless `parents` is false.
    """

    def __init__(self, http: AsyncHTTP, sandbox_id: str) -> None:
        self._http = http
        self._sandbox_id = sandbox_id

    def _path(self, *more: str) -> str:
        return url("v1", "sandboxes", self._sandbox_id, "files", *more)

    # --- contents ---

    async def read(self, path: str, *, encoding: str = "utf-8", errors: str = "strict", max_bytes: int = READ_MAX) -> str:
        """The file as text; `encoding` and `errors` are those of `open`. Other contents are read
        with `read_bytes`, files of more than `max_bytes` with `stream` or `download`."""
        return (await self.read_bytes(path, max_bytes=max_bytes)).decode(encoding, errors)

    async def read_bytes(self, path: str, *, offset: int = 0, length: Optional[int] = None, max_bytes: int = READ_MAX) -> bytes:
        """The file, or `length` bytes of it from `offset` on. More than `max_bytes` are not held in
        memory: ValueError is raised."""
        pieces, size = [], 0
        stream = self.stream(path, offset=offset, length=length)
        try:
            async for piece in stream:
                size += len(piece)
                if size > max_bytes:
                    raise ValueError(f"{path}: has more than {max_bytes} bytes; use files.stream or files.download, or give a larger max_bytes")
                pieces.append(piece)
        finally:
            await stream.aclose()
        return b"".join(pieces)

    async def stream(self, path: str, *, offset: int = 0, length: Optional[int] = None) -> _aio.ByteStream:
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
                response = await self._http.open(Call("GET", self._path(), {"path": path}, headers=headers))
                if etag is not None and response.headers.get("ETag") != etag:
                    await response.aclose()
                    raise PreconditionFailedError(f"{path} changed while it was being read")
                etag = response.headers.get("ETag")
                chunks = self._http.chunks(response)
                try:
                    async for chunk in chunks:
                        begun = True
                        offset += len(chunk)
                        attempts.record_success()
                        yield chunk
                finally:
                    await chunks.aclose()
                return
            except CoveError as error:
                if begun and etag is None:  # the rest could belong to another content
                    raise
                await self._http.again(attempts, error, f"GET {path}")

    async def write(self, path: str, content: Union[Content, AsyncIterable[bytes]], *, parents: bool = True, mode: Optional[int] = None,
                    exclusive: bool = False) -> WriteResult:
        """Writes a file from a text, bytes, an open file, or pieces of bytes. The file appears
        complete or not at all.

        Args:
            parents: create missing directories; otherwise they are an error.
            mode: permission bits; default: 0o644.
            exclusive: refuse to replace an existing file.
        """
        return await self._put(path, _aio.body_of(content), parents, mode, exclusive)

    async def _put(self, path: str, body: Union[bytes, Body], parents: bool, mode: Optional[int], exclusive: bool) -> WriteResult:
        query = {"path": path, "parents": parents, "mode": f"{mode:04o}" if mode is not None else None}
        headers = {"Content-Type": "application/octet-stream", **({"If-None-Match": "*"} if exclusive else {})}
        return await self._http.get(WriteResult, Call("PUT", self._path(), query, body=body, headers=headers, repeatable=not exclusive))

    async def upload(self, local: LocalPath, path: str, *, parents: bool = True, mode: Optional[int] = None) -> WriteResult:
        """Streams a local file into the sandbox. Its permission bits are kept unless `mode` is
        given."""
        name = os.fspath(local)
        body = await _aio.blocking(file_body, name)
        return await self._put(path, body, parents, (os.stat(name).st_mode & 0o777) if mode is None else mode, False)

    async def download(self, path: str, local: LocalPath) -> DownloadResult:
        """Streams a file of the sandbox into a local file, which appears complete or not at all."""
        landing = await _aio.blocking(AtomicFile, os.fspath(local))
        try:
            async for piece in self.stream(path):
                await _aio.blocking(landing.write, piece)
            return await _aio.blocking(landing.keep)
        finally:
            await _aio.blocking(landing.discard)

    # --- whole directories ---

    async def upload_directory(self, local: LocalPath, path: str) -> WriteResult:
        """Copies the contents of a local directory into a directory of the sandbox, which is
        created if missing."""
        from .._archive import directory_body

        body = await _aio.blocking(directory_body, os.fspath(local))
        await self.mkdir(path)
        call = Call("PUT", self._path("tar"), {"path": path}, body=body, headers={"Content-Type": "application/x-tar"})
        return await self._http.get(WriteResult, call)

    async def download_directory(self, path: str, local: LocalPath) -> DownloadResult:
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
                    async for chunk in self._http.chunks(await self._http.open(Call("GET", self._path("tar"), {"path": path}))):
                        await _aio.blocking(spool.write, chunk)
                except CoveError as error:
                    await self._http.again(attempts, error, f"GET {path}")
                    continue
                spool.seek(0)
                return await _aio.blocking(unpack, spool, os.fspath(local))

    # --- changes ---

    def watch(self, path: str = "/workspace", *, recursive: bool = False) -> AsyncWatch:
        """Reports changes of files from the moment at which the block is entered or the first event
        is requested.

            async with sandbox.files.watch("/workspace", recursive=True) as events:
                async for event in events:
                    print(event.type, event.path)

        The iteration ends when the path is removed; when the sandbox ends, its error is raised. A
        watch does not reset the idle timeout.
        """
        return AsyncWatch(self._http, Call("GET", self._path("watch"), {"path": path, "recursive": recursive or None}, headers={"Accept": NDJSON},
                                           read_timeout=SILENCE))

    # --- names ---

    async def sign(self, path: str, *, method: str = "GET", ttl: Optional[Duration] = None) -> FileUrl:
        """A URL that reads ("GET") or writes ("PUT") this file without a key for `ttl` seconds."""
        body = {"path": path, "method": method, **without_none(ttlMs=None if ttl is None else milliseconds(ttl))}
        return await self._http.get(FileUrl, Call("POST", self._path("sign"), json=body, repeatable=False))

    async def list(self, path: str = "/workspace") -> AsyncIterator[FileEntry]:
        """The entries of a directory, sorted by the bytes of their names. A page of 1000 is fetched
        when its first entry is needed."""
        async for entry in self._http.pages(FileEntry, Call("GET", self._path("list"), {"path": path})):
            yield entry

    async def stat(self, path: str) -> FileEntry:
        """The attributes of a path. A link is reported as a link."""
        return await self._http.get(FileEntry, Call("GET", self._path("stat"), {"path": path}))

    async def exists(self, path: str) -> bool:
        try:
            await self.stat(path)
        except NotFoundError as error:
            if error.code != "not_found":  # the sandbox itself does not exist any more
                raise
            return False
        return True

    async def mkdir(self, path: str, *, parents: bool = True, exclusive: bool = False) -> None:
        """Creates a directory. An existing directory is accepted unless `exclusive`."""
        body = without_none(path=path, parents=parents, exclusive=exclusive or None)
        await self._http.send(Call("POST", self._path("mkdir"), json=body, repeatable=not exclusive))

    async def move(self, source: str, target: str, *, parents: bool = True, exclusive: bool = False) -> None:
        """Renames a file or a directory. `exclusive` refuses to replace an existing path."""
        body = {"from": source, "to": target, **without_none(parents=parents, exclusive=exclusive or None)}
        await self._http.send(Call("POST", self._path("move"), json=body, repeatable=False))

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Removes a file or an empty directory; with `recursive`, a directory with its contents."""
        await self._http.send(Call("DELETE", self._path(), {"path": path, "recursive": recursive or None}, done_if=(NotFoundError,)))


class AsyncWatch:
    """Changes of files, as they happen.

    After a broken connection the watch reconnects. Changes in between are lost, so an event of type
    "overflow" is reported: list the directory again.
    """

    def __init__(self, http: AsyncHTTP, call: Call) -> None:
        self._http = http
        self._call = call
        self._attempts = http.attempts()
        self._lines = AsyncLineStream(http)
        self._started = False
        self._closed = False

    async def __aenter__(self) -> AsyncWatch:
        if not self._started:
            await self._next()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncWatch:
        return self

    async def __anext__(self) -> FileEvent:
        while not self._closed:
            event = await self._next()
            if event is not None:
                return event
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Stops watching."""
        self._closed = True
        await self._lines.drop()

    async def _next(self) -> Optional[FileEvent]:
        """The next event; None if the line was not an event."""
        while True:
            try:
                if not self._lines.is_open:
                    await self._lines.open(self._call)
                message = loads_object(await self._lines.next())
            except CoveError as error:
                await self._lines.drop()
                await self._http.again(self._attempts, error, "watch")
                continue
            self._attempts.record_success()
            return await self._take(message)

    async def _take(self, message: Dict[str, Any]) -> Optional[FileEvent]:
        kind = message.get("type")
        if kind == "watching":
            again, self._started = self._started, True
            return FileEvent("overflow") if again else None
        if kind == "end":
            await self.aclose()
            if message.get("error"):
                raise event_error(message["error"])
            return None
        return decode(FileEvent, message) if kind in ("created", "modified", "removed", "moved", "overflow") else None
