"""The client for threads."""

from __future__ import annotations

import http.client
import select
import ssl
import threading
import time
from typing import Any, Callable, Dict, Generic, Iterator, List, Optional, Sequence, Tuple, TypeVar

from .exchange import NoAnswer, Node, Nodes, NotSent, Outcome, Plan, Reply, Retry, Send
from .operations import Moment, Operations, Page, list_query
from .documents import query_of
from .timers import Counts, DeadLetter, Name, Ref, Timer, TimerState, Used, Written

T = TypeVar("T")

#: Longest answer that a client takes: a page has 1 MiB of timers, and one timer more.
ANSWER_BYTES_MAX = 16 << 20
#: A node closes a connection that is silent for 20 s; the client closes it before.
IDLE_MAX_S = 10.0
#: Connections to one node that are kept for later requests.
IDLE_CONNECTIONS_MAX = 16


class Listing(Generic[T]):
    """Iterates over the items of all pages.

    ``incomplete`` has a sentence for each node that was not reached for the pages so far.
    """

    def __init__(self, page: Callable[[Optional[str]], Page[T]]) -> None:
        self._page = page
        self.incomplete: List[str] = []

    def pages(self) -> Iterator[Page[T]]:
        """Iterates over the pages."""
        cursor: Optional[str] = None
        while True:
            page = self._page(cursor)
            self.incomplete += [one for one in page.incomplete if one not in self.incomplete]
            yield page
            cursor = page.cursor
            if cursor is None:
                return

    def __iter__(self) -> Iterator[T]:
        for page in self.pages():
            yield from page.items


class Client:
    """Asks the nodes of a cluster. Threads may share a client.

    ``nodes`` are URLs as ``http://10.0.0.1:7253``. A request that fails goes on at the next node,
    within the bounds of ``retry``. ``ca_file`` has the authorities of ``https`` nodes; a context of
    ``tls`` may have more, as a certificate of the client. Every method raises ``ChronosError``.
    """

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

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *ignored: Any) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that no request uses."""
        self._connections.close()

    def _run(self, plan: Plan[T]) -> T:
        outcome: Outcome = None
        while True:
            try:
                step = plan.send(outcome)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Send):
                outcome = self._connections.send(step)
            else:
                time.sleep(step.pause_s)
                outcome = None

    def create(
        self, timer: Timer, *, key: Optional[str] = None, has_key: bool = True
    ) -> Written:
        """Creates a timer once, however often the request is sent.

        A node remembers the ``key`` (an idempotency key; a random one if left out) for a day, in
        the room of a small timer. With ``has_key=False`` and no ``key`` nothing is remembered, and
        a request that may have been taken is not sent again.
        """
        return self._run(self._operations.create(timer, key, has_key))

    def create_or_replace(
        self,
        name: str,
        timer: Timer,
        *,
        if_match: Optional[str] = None,
        only_create: bool = False,
    ) -> Written:
        """Writes the timer of a name. ``only_create``: 412 if there is one."""
        return self._run(self._operations.put(Name(name), timer, if_match, only_create))

    def update(self, ref: Ref, timer: Timer, *, if_match: Optional[str] = None) -> Written:
        """Replaces a timer: 412 if none has this name. An id that nobody holds is created."""
        condition = if_match or ("*" if isinstance(ref, Name) else None)
        return self._run(self._operations.put(ref, timer, condition, False))

    def get(self, ref: Ref) -> TimerState:
        """Reads a timer."""
        return self._run(self._operations.get(ref))

    def delete(self, ref: Ref, *, if_match: Optional[str] = None) -> None:
        """Deletes a timer, if there is one."""
        self._run(self._operations.delete(ref, if_match))

    def pause(self, ref: Ref, *, if_match: Optional[str] = None) -> Written:
        """Keeps a timer from popping."""
        return self._run(self._operations.act(ref, "pause", if_match))

    def resume(self, ref: Ref, *, if_match: Optional[str] = None) -> Written:
        """Lets a paused timer pop."""
        return self._run(self._operations.act(ref, "resume", if_match))

    def run_now(self, ref: Ref, *, if_match: Optional[str] = None) -> Written:
        """Makes the next pop at once.

        Without ``if_match`` a request that may have been taken is not sent again.
        """
        return self._run(self._operations.act(ref, "run-now", if_match))

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
    ) -> Listing[TimerState]:
        """Iterates over timers. Nodes show lists to clients with a token."""
        query = list_query(tag, host, name_prefix, due_before, due_after, state, page_size)
        return Listing(lambda cursor: self._run(self._operations.timers(query, cursor)))

    def count(self, *, histogram: bool = True) -> Counts:
        """Counts timers. Nodes tell clients with a token."""
        return self._run(self._operations.count(histogram))

    def dead_letters(
        self,
        *,
        tag: Optional[str] = None,
        host: Optional[str] = None,
        reason: Optional[str] = None,
        page_size: int = 100,
    ) -> Listing[DeadLetter]:
        """Iterates over the pops that were given up and kept."""
        query = query_of(tag=tag, host=host, reason=reason, limit=page_size)
        return Listing(lambda cursor: self._run(self._operations.letters(query, cursor)))

    def dead_letter(self, id: str) -> DeadLetter:
        """Reads a dead letter."""
        return self._run(self._operations.letter(id))

    def replay(self, id: str) -> Written:
        """Tries the pop of a dead letter again."""
        return self._run(self._operations.replay(id))

    def delete_dead_letter(self, id: str) -> None:
        """Deletes a dead letter."""
        self._run(self._operations.delete_letter(id))

    def replay_dead_letters(
        self, *, tag: Optional[str] = None, host: Optional[str] = None, reason: Optional[str] = None
    ) -> Used:
        """Tries the pops of all dead letters of a query again."""
        query = query_of(tag=tag, host=host, reason=reason)
        return self._run(self._operations.use_letters(query, True))

    def delete_dead_letters(
        self, *, tag: Optional[str] = None, host: Optional[str] = None, reason: Optional[str] = None
    ) -> Used:
        """Deletes all dead letters of a query."""
        query = query_of(tag=tag, host=host, reason=reason)
        return self._run(self._operations.use_letters(query, False))

    def ping(self) -> None:
        """Asks whether a node takes requests."""
        self._run(self._operations.ping())


def tls_for(
    nodes: Nodes, ca_file: Optional[str], tls: Optional[ssl.SSLContext]
) -> Optional[ssl.SSLContext]:
    """The context for ``https`` nodes; ``None`` where no node is one."""
    if tls is not None and ca_file is not None:
        raise ValueError("expected ca_file or tls, got both")
    if tls is None and any(node.is_tls for node in nodes.all):
        return ssl.create_default_context(cafile=ca_file)
    return tls


class _Connections:
    """Connections to nodes, kept while they may be used again."""

    def __init__(self, tls: Optional[ssl.SSLContext], connect_s: float) -> None:
        self._tls = tls
        self._connect_s = connect_s
        self._lock = threading.Lock()
        self._idle: Dict[str, List[Tuple[float, http.client.HTTPConnection]]] = {}

    def send(self, step: Send) -> Outcome:
        connection = self._take(step.node)
        if connection is None:
            try:
                connection = self._connect(step.node, min(self._connect_s, step.timeout_s))
            except (OSError, http.client.HTTPException) as error:
                return NotSent(f"no connection to {step.node.url}: {_told(error)}")
        request = step.request
        if connection.sock is not None:
            connection.sock.settimeout(step.timeout_s)
        try:
            connection.request(
                request.method, request.target, body=request.body, headers=dict(request.headers)
            )
            response = connection.getresponse()
            body = response.read(ANSWER_BYTES_MAX + 1)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return NoAnswer(f"no answer from {step.node.url}: {_told(error)}")
        if len(body) > ANSWER_BYTES_MAX:
            connection.close()
            return NoAnswer(f"{step.node.url}: expected at most {ANSWER_BYTES_MAX} bytes, got more")
        headers = {name.lower(): value for name, value in response.getheaders()}
        if response.will_close or connection.sock is None:
            connection.close()
        else:
            self._keep(step.node, connection)
        return Reply(response.status, headers, body)

    def _connect(self, node: Node, timeout_s: float) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection
        if node.is_tls:
            connection = http.client.HTTPSConnection(
                node.host, node.port, timeout=timeout_s, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(node.host, node.port, timeout=timeout_s)
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        return connection

    def _take(self, node: Node) -> Optional[http.client.HTTPConnection]:
        while True:
            with self._lock:
                idle = self._idle.get(node.url)
                if not idle:
                    return None
                since_s, connection = idle.pop()
            if time.monotonic() - since_s < IDLE_MAX_S and _is_open(connection):
                return connection
            connection.close()

    def _keep(self, node: Node, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            idle = self._idle.setdefault(node.url, [])
            if len(idle) < IDLE_CONNECTIONS_MAX:
                idle.append((time.monotonic(), connection))
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            idle = [one for pairs in self._idle.values() for _, one in pairs]
            self._idle.clear()
        for connection in idle:
            connection.close()


def _is_open(connection: http.client.HTTPConnection) -> bool:
    """Whether the node has sent nothing, and so has not closed."""
    if connection.sock is None:
        return False
    try:
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(connection.sock, select.POLLIN)
            return not poll.poll(0)
        return not select.select([connection.sock], [], [], 0)[0]
    except (OSError, ValueError):
        return False


def _told(error: BaseException) -> str:
    return str(error) or type(error).__name__
