"""One WebSocket of a sandbox until it closes: messages in, messages out, and the close code as an
error.

The protocol is the sans-I/O half of the `websockets` library over a connection of `_aio` or `_sio`.
Several callers may send at the same time; only one receives.
"""
from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import time
from typing import Any, Deque, Dict, List, Mapping, Optional, Sequence

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidURI, WebSocketException
from websockets.frames import Close, Frame, Opcode
from websockets.http11 import Response
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from .. import _aio
from .._call import HEARTBEAT, SILENCE, answer_error, closed_error
from .._error import CoveError
from .._json import loads_object
from .._settings import Settings
from .._wire import Headers
from ..errors import ConnectionLostError, ProtocolError
from ._connection import open_connection
from ._http import renew_login

MESSAGE_MAX = 32 << 20


@dataclasses.dataclass(eq=False)
class Request:
    """A request on a socket. A ping follows the request, so an error about the request arrives
    before the pong."""

    about: Any
    token: int = 0
    done: bool = False
    error: Optional[CoveError] = None


class AsyncWebSocket:
    def __init__(self, pipe: _aio.ByteConnection, protocol: ClientProtocol, settings: Settings) -> None:
        self._pipe, self._protocol, self._settings = pipe, protocol, settings
        self._lock = _aio.Lock()
        self._early_frames: List[Frame] = []  # frames that arrived together with the answer to the handshake
        self._parts: List[bytes] = []
        self._end: Optional[CoveError] = None
        self._received_at = self._pinged_at = time.monotonic()
        self._serial = 0
        self.requests: Deque[Request] = collections.deque()

    @classmethod
    async def open(cls, settings: Settings, target: str) -> AsyncWebSocket:
        """Connects. A refusal is raised like the refusal of any other request."""
        try:
            uri = parse_uri("ws" + settings.url[len("http"):] + target)
        except InvalidURI as error:
            raise ProtocolError(str(error)) from error
        await renew_login(settings)
        pipe = await open_connection(settings)
        socket = cls(pipe, ClientProtocol(uri, subprotocols=[Subprotocol("cove.v1")], max_size=MESSAGE_MAX), settings)
        try:
            await socket._handshake()
        except BaseException:
            await pipe.aclose()
            raise
        return socket

    def lost(self, why: object) -> ConnectionLostError:
        return ConnectionLostError(f"{self._settings.where}: {why}")

    async def _handshake(self) -> None:
        request = self._protocol.connect()
        for name, value in self._settings.headers().items():
            request.headers[name] = value
        self._protocol.send_request(request)
        events: Sequence[Any] = await self._feed(None)
        while not events and self._protocol.handshake_exc is None:
            data = await self._data(self._settings.timeout)
            if data is None:
                raise self.lost("the server did not answer the handshake")
            events = await self._feed(data)
        answer = events[0] if events else None
        if isinstance(answer, Response) and answer.status_code != 101:
            raise answer_error(answer.status_code, Headers(answer.headers.raw_items()), bytes(answer.body or b""))
        if self._protocol.handshake_exc is not None or not isinstance(answer, Response):
            raise self.lost(self._protocol.handshake_exc or "the connection ended during the handshake")
        self._early_frames = [*events[1:]]

    # --- input ---

    async def receive(self, patience: float) -> List[Dict[str, Any]]:
        """The messages that arrived; an empty list if none arrives within `patience` seconds.
        Raises the end of the connection, and ConnectionLostError if the server is silent for too
        long."""
        if self._end is not None:
            raise self._end
        frames, self._early_frames = self._early_frames, []
        if not frames:
            data = await self._data(max(min(patience, HEARTBEAT), 0.0))
            if data is None:
                await self._check_silence()
                return []
            try:
                frames = [event for event in await self._feed(data) if isinstance(event, Frame)]
            except CoveError:
                raise
            except BaseException:  # these bytes are lost, so the socket cannot be used any more
                await self._pipe.cut()
                raise
            if not data and not frames:
                raise closed_error(1006, "it ended without a close frame", self._settings.where)
        return self._messages(frames)

    async def _data(self, patience: float) -> Optional[bytes]:
        try:
            data = await self._pipe.receive(patience)
        except (OSError, ValueError) as error:  # ValueError: the connection was closed meanwhile
            raise self.lost(error) from error
        if data is not None:
            self._received_at = time.monotonic()
        return data

    async def _check_silence(self) -> None:
        now = time.monotonic()
        if now - self._received_at > SILENCE:
            raise self.lost("it was silent for too long")
        if now - max(self._received_at, self._pinged_at) >= HEARTBEAT:
            self._pinged_at = now
            async with self._lock:
                self._protocol.send_ping(b"")
                await self._flush()

    async def _feed(self, data: Optional[bytes]) -> List[Any]:
        """Passes received bytes to the protocol and sends the frames with which the protocol
        answers."""
        async with self._lock:
            if data:
                self._protocol.receive_data(data)
            elif data is not None:
                self._protocol.receive_eof()
            events = self._protocol.events_received()
            try:
                await self._flush()
            except ConnectionLostError:
                if not events:  # the close frame of the server says more than our failure to send
                    raise
        return events

    def _messages(self, frames: Sequence[Frame]) -> List[Dict[str, Any]]:
        found: List[Dict[str, Any]] = []
        for frame in frames:
            if frame.opcode is Opcode.CLOSE:
                close = Close.parse(bytes(frame.data))
                self._end = closed_error(int(close.code), close.reason, self._settings.where)
                break
            if frame.opcode in (Opcode.TEXT, Opcode.CONT):
                self._parts.append(bytes(frame.data))
                if frame.fin:
                    text, self._parts = b"".join(self._parts), []
                    found.append(loads_object(text))
        if self._end is not None and not found:
            raise self._end
        return found

    # --- output ---

    async def post(self, message: Mapping[str, Any], request: Optional[Request] = None) -> None:
        """Sends a message; with a request also the ping that follows it."""
        async with self._lock:
            texts = [json.dumps(message)]
            if request is not None:
                self._serial += 1
                request.token = self._serial
                self.requests.append(request)
                texts.append(json.dumps({"type": "ping", "timestamp": request.token}))
            try:
                for text in texts:
                    self._protocol.send_text(text.encode())
            except WebSocketException as error:
                raise self.lost(error) from error
            await self._flush()

    def acknowledge(self, token: Any) -> None:
        """Handles a pong: the server has carried out the earlier requests, or sent their errors."""
        while self.requests:
            request = self.requests.popleft()
            request.done = True
            if request.token == token:
                return

    async def _flush(self) -> None:
        data = b"".join(self._protocol.data_to_send())
        if not data:
            return
        try:
            await self._pipe.send(data, self._settings.timeout)
        except OSError as error:
            await self._pipe.cut()
            raise self.lost(error) from error
        except BaseException:  # the frame may have been sent in part
            await self._pipe.cut()
            raise

    async def cut(self) -> None:
        """Closes the connection while another caller may be receiving from it."""
        with contextlib.suppress(CoveError, WebSocketException):
            async with self._lock:
                self._protocol.send_close(1000)
                await self._flush()
        await self._pipe.cut()

    async def aclose(self) -> None:
        await self._pipe.aclose()
