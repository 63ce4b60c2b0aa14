"""A server that answers by a script, and raw requests: for tests of what goes over a wire."""

import socket
import threading
from typing import Callable, List, Tuple

Script = Callable[[str, int], bytes]


class Server:
    """Answers each request with bytes of the script; empty bytes break the connection."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.requests: List[Tuple[int, str]] = []
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._lock = threading.Lock()
        self._connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        # Wakes the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            self._connections += 1
            words = (stream, self._connections)
            threading.Thread(target=self._serve, args=words, daemon=True).start()

    def _serve(self, stream: socket.socket, connection: int) -> None:
        with stream:
            while True:
                request = read_message(stream)
                if not request:
                    return
                with self._lock:
                    count = len(self.requests)
                    self.requests.append((connection, request))
                answer = self._script(request, count)
                if not answer:
                    return
                stream.sendall(answer)
                if b"Connection: close" in answer:
                    return


def read_message(stream: socket.socket) -> str:
    """Reads a message with a Content-Length; empty if the stream ends before."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = stream.recv(65536)
        if not piece:
            return ""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    length = int(lines[0].split(b":")[1]) if lines else 0
    while len(body) < length:
        piece = stream.recv(65536)
        if not piece:
            return ""
        body += piece
    return (head + b"\r\n\r\n" + body).decode("latin-1")


def header(message: str, name: str) -> str:
    """The value of a header of a message; empty if there is none."""
    for line in message.split("\r\n\r\n")[0].split("\r\n")[1:]:
        one, _, value = line.partition(":")
        if one.lower() == name.lower():
            return value.strip()
    return ""


def answer(status: int, body: str = "", *headers: str) -> bytes:
    """An answer with a length."""
    lines = [f"HTTP/1.1 {status} X", *headers, f"Content-Length: {len(body)}", "", body]
    return "\r\n".join(lines).encode("latin-1")


def nobody() -> str:
    """The URL of a port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def ask(port: int, request: bytes) -> str:
    """Sends bytes and returns the first message that comes back; empty if none does."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as stream:
        stream.sendall(request)
        return read_message(stream)
