"""The callback server for asyncio."""

from __future__ import annotations

import asyncio
import ssl
import time
from http import HTTPStatus
from typing import Any, Awaitable, Callable, Iterable, Optional, Sequence, Set, Tuple

from .pops import Answer, Gate, Memory, Pop
from .receiver import BODY_BYTES_MAX, CONNECTIONS_MAX, SILENCE_S, log_failure
from .streams import BadMessage, HEAD_BYTES_MAX, content_length, header, read_body, read_head


class AsyncReceiver:
    """``Receiver`` for one event loop: ``handler`` is awaited."""

    def __init__(
        self,
        handler: Callable[[Pop], Awaitable[None]],
        secrets: Sequence[str] = (),
        *,
        unsigned: bool = False,
        skew_s: float = 300.0,
        keep_s: float = 3600.0,
        pops_max: int = 100_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        memory = Memory(pops_max, keep_s, time.monotonic)
        self._gate = Gate(secrets, unsigned, skew_s, memory, clock)
        self._handler = handler

    def set_secrets(self, secrets: Sequence[str]) -> None:
        """Replaces the secrets while callbacks come."""
        self._gate.set_secrets(secrets)

    async def receive(
        self, method: str, path: str, headers: Iterable[Tuple[str, str]], body: bytes
    ) -> Answer:
        """Takes a callback that a server of your own has read: ``body`` as the bytes came."""
        begun = self._gate.begin(method, path, headers, body)
        if isinstance(begun, Answer):
            return begun
        try:
            await self._handler(begun.pop)
        except Exception as error:  # The node tries again, whatever went wrong.
            log_failure(error)
            return self._gate.end(begun, error)
        except BaseException as error:
            self._gate.end(begun, error)
            raise
        return self._gate.end(begun, None)

    async def serve(
        self, host: str, port: int, *, tls: Optional[ssl.SSLContext] = None
    ) -> "AsyncReceiverServer":
        """Listens until the server is closed."""
        server = AsyncReceiverServer(self)
        await server.start(host, port, tls)
        return server


class AsyncReceiverServer:
    """A server that listens. ``port`` is the one that was taken."""

    def __init__(self, receiver: AsyncReceiver) -> None:
        self._receiver = receiver
        self._server: Optional[asyncio.AbstractServer] = None
        self._open: Set[asyncio.StreamWriter] = set()
        self.port = 0

    async def start(self, host: str, port: int, tls: Optional[ssl.SSLContext]) -> None:
        """Begins to listen."""
        server = await asyncio.start_server(
            self._serve_one, host, port, ssl=tls, limit=HEAD_BYTES_MAX
        )
        self._server = server
        self.port = server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Takes no further callback, and closes the connections."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._open):
            writer.close()
        if self._server is not None:
            await self._server.wait_closed()

    async def __aenter__(self) -> "AsyncReceiverServer":
        return self

    async def __aexit__(self, *ignored: Any) -> None:
        await self.close()

    async def _serve_one(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if len(self._open) >= CONNECTIONS_MAX:
            writer.close()
            return
        self._open.add(writer)
        try:
            while await self._take(reader, writer):
                pass
        except (OSError, EOFError, asyncio.TimeoutError, asyncio.CancelledError):
            # The node has gone, or says nothing.
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Takes a callback. Returns whether another one may follow on the connection."""
        try:
            first, headers = await asyncio.wait_for(read_head(reader), SILENCE_S)
            words = first.split(" ")
            if len(words) != 3 or not words[2].startswith("HTTP/1."):
                raise BadMessage(400, "expected a request line of HTTP/1.1")
            if header(headers, "transfer-encoding"):
                raise BadMessage(411, "expected a Content-Length and no Transfer-Encoding")
            body = b""
            if content_length(headers) > 0:
                reading = read_body(reader, headers, BODY_BYTES_MAX)
                body = await asyncio.wait_for(reading, SILENCE_S)
        except BadMessage as error:
            await _answer(writer, Answer(error.status, str(error)), is_last=True)
            return False
        answer = await self._receiver.receive(words[0], words[1], headers, body)
        says_close = header(headers, "connection").lower() == "close"
        is_last = says_close or words[2] == "HTTP/1.0"
        await _answer(writer, answer, is_last)
        return not is_last


async def _answer(writer: asyncio.StreamWriter, answer: Answer, is_last: bool) -> None:
    body = answer.reason.encode("utf-8")
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in answer.headers()]
    lines += ["Connection: close"] if is_last else []
    lines += [f"Content-Length: {len(body)}", "", ""]
    writer.write("\r\n".join(lines).encode("latin-1") + body)
    await writer.drain()
