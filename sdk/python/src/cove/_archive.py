"""A local directory as a tar archive, and the other way round.

An archive comes out of a sandbox, so its contents are hostile. It is unpacked as plain files,
directories and links, each below the given directory: no name leads out, no link is followed, no
link is created that points out, no special mode bits are set. Members that are refused are
reported.
"""
from __future__ import annotations

import contextlib
import os
import stat
import tarfile
from typing import IO, Iterator, List, Tuple, Union

from ._call import Body
from ._local import DownloadResult, exactly, read_all
from .errors import ProtocolError

BLOCK = 512


# --- a directory as an archive ---

def walk(top: str, below: str = "") -> Iterator[Tuple[str, str]]:
    """Yields (path, name in the archive); a directory precedes its contents, and the order is
    stable."""
    for entry in sorted(os.scandir(os.path.join(top, below)), key=lambda e: e.name):
        name = os.path.join(below, entry.name)
        yield entry.path, name
        if entry.is_dir(follow_symlinks=False):
            yield from walk(top, name)


def header_of(path: str, name: str) -> Union[None, tarfile.TarInfo]:
    """The tar header; None if the path is neither a file, a directory nor a link."""
    info = os.lstat(path)
    item = tarfile.TarInfo(name.replace(os.sep, "/"))
    item.mode, item.mtime = stat.S_IMODE(info.st_mode), int(info.st_mtime)
    if stat.S_ISREG(info.st_mode):
        item.size = info.st_size
    elif stat.S_ISDIR(info.st_mode):
        item.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(info.st_mode):
        item.type, item.linkname = tarfile.SYMTYPE, os.readlink(path)
    else:
        return None
    return item


def pack(directory: str) -> Iterator[bytes]:
    """A tar archive of the contents of a directory, in pieces; sockets, pipes and devices are
    omitted."""
    for path, name in walk(directory):
        item = header_of(path, name)
        if item is None:
            continue
        yield item.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
        if item.isreg():
            with open(path, "rb") as f:
                yield from exactly(f, item.size, path)
            yield bytes(-item.size % BLOCK)
    yield bytes(2 * BLOCK)


def directory_body(directory: str) -> Body:
    if not os.path.isdir(directory):
        raise NotADirectoryError(f"{directory} is not a directory")
    return Body(lambda: pack(directory))


# --- an archive as a directory ---

class MemberRefused(Exception):
    """A member of an archive is refused; the text says why."""


class ArchiveExtractor:
    def __init__(self, top: str) -> None:
        self.top = top
        self.made = {""}  # directories that are known not to be links
        self.modes: List[Tuple[str, int]] = []

    def real(self, parts: List[str]) -> str:
        """The directory of these names below the top, created if missing. Neither it nor any
        directory above it is a link."""
        for n in range(1, len(parts) + 1):
            name = os.path.join(*parts[:n])
            if name in self.made:
                continue
            path = os.path.join(self.top, name)
            try:
                if not stat.S_ISDIR(os.lstat(path).st_mode):
                    raise MemberRefused("a file or a link is in the way of its directory")
            except FileNotFoundError:
                os.mkdir(path)
            self.made.add(name)
        return os.path.join(self.top, *parts)

    def place(self, parts: List[str]) -> str:
        """The path of a new file or link; an existing file or link is removed, a directory is
        not."""
        path = os.path.join(self.real(parts[:-1]), parts[-1])
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.lstat(path).st_mode):
                raise MemberRefused("a directory with the same name exists")
            os.unlink(path)
        return path

    def member(self, archive: tarfile.TarFile, item: tarfile.TarInfo) -> None:
        parts = parts_of(item.name)
        if item.isdir():
            self.modes.append((self.real(parts), item.mode & 0o777))
        elif not parts:
            raise MemberRefused("its name is empty")
        elif item.issym():
            check_link(item.linkname, len(parts) - 1)
            os.symlink(item.linkname, self.place(parts))
        elif item.isreg():
            source = archive.extractfile(item)
            assert source is not None
            target = os.open(self.place(parts), os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), item.mode & 0o777 | 0o200)
            with os.fdopen(target, "wb") as out:
                for piece in read_all(source):
                    out.write(piece)
            os.utime(out.name if isinstance(out.name, str) else os.path.join(self.top, *parts), (item.mtime, item.mtime))
        else:
            raise MemberRefused("it is neither a file, a directory nor a link")


def parts_of(name: str) -> List[str]:
    if name.startswith("/") or "\0" in name or (os.sep != "/" and (os.sep in name or ":" in name)):
        raise MemberRefused("its name leads out of the directory")
    parts = [p for p in name.split("/") if p not in ("", ".")]
    if ".." in parts:
        raise MemberRefused("its name leads out of the directory")
    return parts


def check_link(target: str, depth: int) -> None:
    """A link target may use `..` only at its beginning, and only up to the top: a name may itself
    be a link, so a `..` after a name may lead anywhere."""
    parts = [p for p in target.split("/") if p not in ("", ".")]
    ups = 0
    while ups < len(parts) and parts[ups] == "..":
        ups += 1
    if not target or target.startswith("/") or ups > depth or ".." in parts[ups:]:
        raise MemberRefused(f"it is a link that points out of the directory: {target!r}")


def unpack(file: IO[bytes], directory: str) -> DownloadResult:
    os.makedirs(directory, exist_ok=True)
    work = ArchiveExtractor(directory)
    files = size = 0
    skipped: List[Tuple[str, str]] = []
    try:
        with tarfile.open(fileobj=file, mode="r:", errorlevel=2) as archive:
            for item in archive:
                try:
                    work.member(archive, item)
                except MemberRefused as why:
                    skipped.append((item.name, str(why)))
                    continue
                files += not item.isdir()
                size += item.size if item.isreg() else 0
    except tarfile.TarError as error:
        raise ProtocolError(f"the archive is malformed: {error}") from error
    for path, mode in reversed(work.modes):
        os.chmod(path, mode | 0o700)
    return DownloadResult(directory, files, size, skipped)
