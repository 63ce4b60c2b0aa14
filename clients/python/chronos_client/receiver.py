"""The callback server for threads."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Iterable, Optional, Sequence, Tuple

from .pops import Answer, Gate, Gone, Later, Memory, Pop

_LOG = logging.getLogger("chronos_client")

#: Longest body that is read: more than `limits.opaque_bytes_max` of a node has by default.
BODY_BYTES_MAX = 1 << 20
#: A node closes an idle connection after 30 s.
SILENCE_S = 60.0
CONNECTIONS_MAX = 512


class Receiver:
    """Verifies callbacks, drops repeats, and hands each pop to ``handler`` once.

    The answer is 200 when the handler returns, 410 when it raises ``Gone``, and 503 when it raises
    ``Later`` or fails: the node tries again. What is not signed is answered 401. A repeat is
    answered as the pop before, and 503 while that is under way.

    ``secrets`` are ``whsec_...``: the new one, and the old one while nodes sign with both.
    ``unsigned=True`` takes callbacks of nodes that do not sign. Then a repeat is known by
    ``X-Timer-Id``, number and ``X-Due-Time``; where nodes do not send these, each callback reaches
    the handler. ``skew_s`` is how far the clocks of node and receiver may differ. At most
    ``pops_max`` pops are remembered, for ``keep_s``.
    """

    def __init__(
        self,
        handler: Callable[[Pop], None],
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

    def receive(
        self, method: str, path: str, headers: Iterable[Tuple[str, str]], body: bytes
    ) -> Answer:
        """Takes a callback that a server of your own has read: ``body`` as the bytes came."""
        begun = self._gate.begin(method, path, headers, body)
        if isinstance(begun, Answer):
            return begun
        try:
            self._handler(begun.pop)
        except Exception as error:  # The node tries again, whatever went wrong.
            log_failure(error)
            return self._gate.end(begun, error)
        except BaseException as error:
            self._gate.end(begun, error)
            raise
        return self._gate.end(begun, None)

    def serve(
        self, host: str, port: int, *, tls: Optional[ssl.SSLContext] = None
    ) -> "ReceiverServer":
        """Listens, on threads of its own, until the server is closed."""
        return ReceiverServer(self, host, port, tls)


def log_failure(error: BaseException) -> None:
    """Logs what a handler raised, unless that is its answer."""
    if not isinstance(error, (Gone, Later)):
        _LOG.error("the handler of a callback failed", exc_info=error)


class ReceiverServer:
    """A server that listens. ``port`` is the one that was taken."""

    def __init__(
        self, receiver: Receiver, host: str, port: int, tls: Optional[ssl.SSLContext]
    ) -> None:
        self._server = _Server(receiver, host, port, tls)
        self.port: int = self._server.server_address[1]
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()

    def close(self) -> None:
        """Takes no further callback. Handlers that run go on."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> "ReceiverServer":
        return self

    def __exit__(self, *ignored: Any) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(
        self, receiver: Receiver, host: str, port: int, tls: Optional[ssl.SSLContext]
    ) -> None:
        self.receiver = receiver
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._places = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__((host, port), _Handler)
        if tls is not None:
            # The handshake is made by the thread of the connection, with its first read.
            self.socket = tls.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _LOG.debug("the connection of %s ended", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "chronos-client"
    sys_version = ""
    timeout = SILENCE_S
    disable_nagle_algorithm = True

    def _take(self) -> None:
        lengths = self.headers.get_all("Content-Length", ["0"])
        is_length = len(lengths) == 1 and lengths[0].isascii() and lengths[0].isdigit()
        if "Transfer-Encoding" in self.headers or not is_length or len(lengths[0]) > 15:
            self._refuse(Answer(411, "Content-Length: expected one, and no Transfer-Encoding"))
            return
        length = int(lengths[0])
        if length > BODY_BYTES_MAX:
            self._refuse(Answer(413, f"body: expected at most {BODY_BYTES_MAX} bytes"))
            return
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            return
        server = self.server
        assert isinstance(server, _Server)
        headers = self.headers.items()
        self._answer(server.receiver.receive(self.command, self.path, headers, body))

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _take

    def _refuse(self, answer: Answer) -> None:
        """Answers without the body, which nobody will read."""
        self.close_connection = True
        self._answer(answer)

    def _answer(self, answer: Answer) -> None:
        body = answer.reason.encode("utf-8")
        self.send_response(answer.status)
        for name, value in answer.headers():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *words: Any) -> None:
        _LOG.debug(format, *words)
