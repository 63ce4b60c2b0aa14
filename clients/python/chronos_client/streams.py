"""HTTP/1.1 messages on streams of asyncio: for the client, and for the receiver."""

from __future__ import annotations

import asyncio
from typing import Dict, List, Tuple

HEAD_BYTES_MAX = 32 << 10

Headers = List[Tuple[str, str]]


class BadMessage(Exception):
    """What came is no HTTP/1.1 message, or is longer than it may be."""

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        super().__init__(reason)


async def read_head(reader: asyncio.StreamReader) -> Tuple[str, Headers]:
    """Reads the first line and the headers; ``EOFError`` if the stream ends before the first byte.

    The limit of the reader bounds the head.
    """
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            raise EOFError("the connection was closed") from None
        raise BadMessage(400, "expected a whole head, got the end of the connection") from None
    except asyncio.LimitOverrunError:
        raise BadMessage(431, f"expected a head of at most {HEAD_BYTES_MAX} bytes") from None
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    headers: Headers = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name.strip() != name:
            raise BadMessage(400, "expected `name: value` in each line of the head")
        headers.append((name.lower(), value.strip(" \t")))
    return first, headers


def header(headers: Headers, name: str) -> str:
    """The only value of a header; empty if there is none."""
    values = [value for one, value in headers if one == name]
    if len(values) > 1:
        raise BadMessage(400, f"expected one {name}, got several")
    return values[0] if values else ""


def content_length(headers: Headers) -> int:
    """The length of the body; -1 if there is none said."""
    text = header(headers, "content-length")
    if not text:
        return -1
    if not (text.isascii() and text.isdigit()) or len(text) > 15:
        raise BadMessage(400, "expected a decimal number as Content-Length")
    return int(text)


async def read_body(reader: asyncio.StreamReader, headers: Headers, bytes_max: int) -> bytes:
    """Reads the body of an answer: of a length, in chunks, or up to the end of the stream."""
    if header(headers, "transfer-encoding").lower() == "chunked":
        return await _read_chunks(reader, bytes_max)
    length = content_length(headers)
    if length > bytes_max:
        raise BadMessage(413, f"expected at most {bytes_max} bytes, got {length}")
    if length >= 0:
        return await reader.readexactly(length)
    body = b""
    while True:
        piece = await reader.read(64 << 10)
        if not piece:
            return body
        body += piece
        if len(body) > bytes_max:
            raise BadMessage(413, f"expected at most {bytes_max} bytes, got more")


async def _read_chunks(reader: asyncio.StreamReader, bytes_max: int) -> bytes:
    body = b""
    while True:
        line = (await reader.readuntil(b"\r\n"))[:-2].split(b";")[0].strip()
        try:
            size = int(line, 16) if line[:1] not in (b"+", b"-") else -1
        except ValueError:
            size = -1
        if size < 0:
            raise BadMessage(400, "expected the size of a chunk, got something else")
        if len(body) + size > bytes_max:
            raise BadMessage(413, f"expected at most {bytes_max} bytes, got more")
        if size == 0:
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass
            return body
        body += await reader.readexactly(size)
        if await reader.readexactly(2) != b"\r\n":
            raise BadMessage(400, "expected the end of a chunk, got something else")


def as_dict(headers: Headers) -> Dict[str, str]:
    """Headers by name; of a header that comes several times the last value."""
    return dict(headers)
