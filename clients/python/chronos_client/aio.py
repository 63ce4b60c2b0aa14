"""The client for asyncio."""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import Any, AsyncIterator, Awaitable, Callable, Dict, Generic, List, Optional
from typing import Sequence, Tuple, TypeVar

from .client import ANSWER_BYTES_MAX, IDLE_CONNECTIONS_MAX, IDLE_MAX_S, tls_for
from .documents import query_of
from .exchange import NoAnswer, Node, Nodes, NotSent, Outcome, Plan, Reply, Retry, Send
from .operations import Moment, Operations, Page, list_query
from .streams import BadMessage, HEAD_BYTES_MAX, as_dict, read_body, read_head
from .timers import Counts, DeadLetter, Name, Ref, Timer, TimerState, Used, Written

T = TypeVar("T")


class AsyncListing(Generic[T]):
    """Iterates over the items of all pages (``async for``).

    ``incomplete`` has a sentence for each node that was not reached for the pages so far.
    """

    def __init__(self, page: Callable[[Optional[str]], Awaitable[Page[T]]]) -> None:
        self._page = page
        self.incomplete: List[str] = []

    async def pages(self) -> AsyncIterator[Page[T]]:
        """Iterates over the pages."""
        cursor: Optional[str] = None
        while True:
            page = await self._page(cursor)
            self.incomplete += [one for one in page.incomplete if one not in self.incomplete]
            yield page
            cursor = page.cursor
            if cursor is None:
                return

    async def __aiter__(self) -> AsyncIterator[T]:
        async for page in self.pages():
            for item in page.items:
                yield item


class AsyncClient:
    """``Client`` for one event loop: the same methods, each to be awaited."""

    def __init__(
        self,
        nodes: Sequence[str],
        *,
        token: Optional[str] = None,
        ca_file: Optional[str] = None,
        tls: Optional[ssl.SSLContext] = None,
        retry: Retry = Retry(),
    ) -> None:
        all_nodes = Nodes(nodes, retry, time.monotonic)
        self._operations = Operations(all_nodes, token)
        self._connections = _Connections(tls_for(all_nodes, ca_file, tls), retry.connect_s)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *ignored: Any) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections that no request uses."""
        await self._connections.close()

    async def _run(self, plan: Plan[T]) -> T:
        outcome: Outcome = None
        while True:
            try:
                step = plan.send(outcome)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Send):
                outcome = await self._connections.send(step)
            else:
                await asyncio.sleep(step.pause_s)
                outcome = None

    async def create(
        self, timer: Timer, *, key: Optional[str] = None, has_key: bool = True
    ) -> Written:
        """As ``Client.create``."""
        return await self._run(self._operations.create(timer, key, has_key))

    async def create_or_replace(
        self,
        name: str,
        timer: Timer,
        *,
        if_match: Optional[str] = None,
        only_create: bool = False,
    ) -> Written:
        """As ``Client.create_or_replace``."""
        return await self._run(self._operations.put(Name(name), timer, if_match, only_create))

    async def update(self, ref: Ref, timer: Timer, *, if_match: Optional[str] = None) -> Written:
        """As ``Client.update``."""
        condition = if_match or ("*" if isinstance(ref, Name) else None)
        return await self._run(self._operations.put(ref, timer, condition, False))

    async def get(self, ref: Ref) -> TimerState:
        """Reads a timer."""
        return await self._run(self._operations.get(ref))

    async def delete(self, ref: Ref, *, if_match: Optional[str] = None) -> None:
        """Deletes a timer, if there is one."""
        await self._run(self._operations.delete(ref, if_match))

    async def pause(self, ref: Ref, *, if_match: Optional[str] = None) -> Written:
        """Keeps a timer from popping."""
        return await self._run(self._operations.act(ref, "pause", if_match))

    async def resume(self, ref: Ref, *, if_match: Optional[str] = None) -> Written:
        """Lets a paused timer pop."""
        return await self._run(self._operations.act(ref, "resume", if_match))

    async def run_now(self, ref: Ref, *, if_match: Optional[str] = None) -> Written:
        """As ``Client.run_now``."""
        return await self._run(self._operations.act(ref, "run-now", if_match))

    def list(
        self,
        *,
        tag: Optional[str] = None,
        host: Optional[str] = None,
        name_prefix: Optional[str] = None,
        due_before: Moment = None,
        due_after: Moment = None,
        state: Optional[str] = None,
        page_size: int = 100,
    ) -> AsyncListing[TimerState]:
        """Iterates over timers. Nodes show lists to clients with a token."""
        query = list_query(tag, host, name_prefix, due_before, due_after, state, page_size)
        return AsyncListing(lambda cursor: self._run(self._operations.timers(query, cursor)))

    async def count(self, *, histogram: bool = True) -> Counts:
        """Counts timers. Nodes tell clients with a token."""
        return await self._run(self._operations.count(histogram))

    def dead_letters(
        self,
        *,
        tag: Optional[str] = None,
        host: Optional[str] = None,
        reason: Optional[str] = None,
        page_size: int = 100,
    ) -> AsyncListing[DeadLetter]:
        """Iterates over the pops that were given up and kept."""
        query = query_of(tag=tag, host=host, reason=reason, limit=page_size)
        return AsyncListing(lambda cursor: self._run(self._operations.letters(query, cursor)))

    async def dead_letter(self, id: str) -> DeadLetter:
        """Reads a dead letter."""
        return await self._run(self._operations.letter(id))

    async def replay(self, id: str) -> Written:
        """Tries the pop of a dead letter again."""
        return await self._run(self._operations.replay(id))

    async def delete_dead_letter(self, id: str) -> None:
        """Deletes a dead letter."""
        await self._run(self._operations.delete_letter(id))

    async def replay_dead_letters(
        self, *, tag: Optional[str] = None, host: Optional[str] = None, reason: Optional[str] = None
    ) -> Used:
        """Tries the pops of all dead letters of a query again."""
        query = query_of(tag=tag, host=host, reason=reason)
        return await self._run(self._operations.use_letters(query, True))

    async def delete_dead_letters(
        self, *, tag: Optional[str] = None, host: Optional[str] = None, reason: Optional[str] = None
    ) -> Used:
        """Deletes all dead letters of a query."""
        query = query_of(tag=tag, host=host, reason=reason)
        return await self._run(self._operations.use_letters(query, False))

    async def ping(self) -> None:
        """Asks whether a node takes requests."""
        await self._run(self._operations.ping())


_Streams = Tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Connections:
    """Connections to nodes, kept while they may be used again."""

    def __init__(self, tls: Optional[ssl.SSLContext], connect_s: float) -> None:
        self._tls = tls
        self._connect_s = connect_s
        self._idle: Dict[str, List[Tuple[float, _Streams]]] = {}

    async def send(self, step: Send) -> Outcome:
        streams = self._take(step.node)
        if streams is None:
            timeout_s = min(self._connect_s, step.timeout_s)
            try:
                streams = await asyncio.wait_for(self._connect(step.node), timeout_s)
            except (OSError, asyncio.TimeoutError) as error:
                return NotSent(f"no connection to {step.node.url}: {_told(error)}")
        is_kept = False
        try:
            reply, is_kept = await asyncio.wait_for(_ask(streams, step), step.timeout_s)
        except (OSError, EOFError, BadMessage, asyncio.TimeoutError) as error:
            return NoAnswer(f"no answer from {step.node.url}: {_told(error)}")
        except asyncio.LimitOverrunError as error:
            return NoAnswer(f"no answer from {step.node.url}: {_told(error)}")
        finally:
            idle = self._idle.setdefault(step.node.url, [])
            if is_kept and len(idle) < IDLE_CONNECTIONS_MAX:
                idle.append((time.monotonic(), streams))
            else:
                streams[1].close()
        return reply

    async def _connect(self, node: Node) -> _Streams:
        tls = self._tls if node.is_tls else None
        return await asyncio.open_connection(node.host, node.port, ssl=tls, limit=HEAD_BYTES_MAX)

    def _take(self, node: Node) -> Optional[_Streams]:
        idle = self._idle.get(node.url, [])
        while idle:
            since_s, (reader, writer) = idle.pop()
            is_open = not reader.at_eof() and not writer.is_closing()
            if is_open and time.monotonic() - since_s < IDLE_MAX_S:
                return reader, writer
            writer.close()
        return None

    async def close(self) -> None:
        idle = [streams for pairs in self._idle.values() for _, streams in pairs]
        self._idle.clear()
        for _, writer in idle:
            writer.close()
        for _, writer in idle:
            try:
                await writer.wait_closed()
            except OSError:
                pass


async def _ask(streams: _Streams, step: Send) -> Tuple[Reply, bool]:
    """Sends a request. Returns the answer, and whether the connection stays open."""
    reader, writer = streams
    request = step.request
    lines = [f"{request.method} {request.target} HTTP/1.1", f"Host: {step.node.authority}"]
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    lines += [f"Content-Length: {len(request.body)}", "", ""]
    writer.write("\r\n".join(lines).encode("latin-1") + request.body)
    await writer.drain()
    status = 100
    while 100 <= status < 200:
        first, headers = await read_head(reader)
        words = first.split(" ", 2)
        if not words[0].startswith("HTTP/1.") or len(words) < 2 or not words[1].isdigit():
            raise BadMessage(400, "expected an answer of HTTP/1.1, got something else")
        status = int(words[1])
    told = as_dict(headers)
    body = b"" if status == 204 else await read_body(reader, headers, ANSWER_BYTES_MAX)
    has_end = "content-length" in told or "transfer-encoding" in told or status == 204
    says_close = told.get("connection", "").lower() == "close" or words[0] == "HTTP/1.0"
    return Reply(status, told, body), has_end and not says_close


def _told(error: BaseException) -> str:
    return str(error) or type(error).__name__
