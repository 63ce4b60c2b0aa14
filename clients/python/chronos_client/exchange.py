"""One request over several nodes: which node is asked, when, and how often. No socket, no clock.

A *plan* is a generator. The plan yields steps, and gets back what became of each; the sync and the
asyncio client carry the steps out.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Callable, Generator, List, Mapping, Optional, Sequence, TypeVar, Union
from urllib.parse import urlsplit

from .errors import ChronosError, error_of

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """A request to any node. ``repeatable``: twice does what once does."""

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    repeatable: bool = True


@dataclass(frozen=True)
class Reply:
    """An answer. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class NotSent:
    """No connection came about, so the node has not heard of the request."""

    reason: str


@dataclass(frozen=True)
class NoAnswer:
    """The node may have heard of the request."""

    reason: str


@dataclass(frozen=True)
class Send:
    """The step to send a request to a node, and to wait for the answer so long."""

    node: Node
    request: Request
    timeout_s: float


@dataclass(frozen=True)
class Wait:
    """The step to wait."""

    pause_s: float


Step = Union[Send, Wait]
Outcome = Union[Reply, NotSent, NoAnswer, None]
Plan = Generator[Step, Outcome, T]


@dataclass(frozen=True)
class Retry:
    """Bounds of the tries of one request.

    A node answers within 8 s at the latest, so ``try_s`` is more. Pauses double from
    ``first_pause_s`` to ``longest_pause_s``, and each is shortened at random by up to a half.
    """

    attempts: int = 10
    deadline_s: float = 30.0
    try_s: float = 10.0
    connect_s: float = 2.0
    first_pause_s: float = 0.1
    longest_pause_s: float = 5.0


class Node:
    """A node as its requests found it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"expected http://host:port or https://host:port, got {url!r}")
        if parts.path not in ("", "/") or parts.query or parts.fragment or parts.username:
            raise ValueError(f"expected nothing behind the port, got {url!r}")
        self.is_tls = parts.scheme == "https"
        self.host: str = parts.hostname
        self.port: int = parts.port or (7443 if self.is_tls else 7253)
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.authority = f"{host}:{self.port}"
        self.url = f"{parts.scheme}://{self.authority}"
        self.failures = 0
        self.not_before_s = 0.0
        # Whether the node itself asked for the pause.
        self.asked_for_pause = False


class Nodes:
    """The nodes of a cluster, in the order in which a client asks them."""

    def __init__(
        self,
        urls: Sequence[str],
        retry: Retry,
        clock: Callable[[], float],
        chance: Callable[[], float] = random.random,
    ) -> None:
        if isinstance(urls, str) or not urls:
            raise ValueError(f"expected a list of one URL or more, got {urls!r}")
        self.all: List[Node] = [Node(url) for url in urls]
        self.retry = retry
        self.clock = clock
        self._chance = chance
        # Clients begin at different nodes, and stay where they are answered.
        self._preferred = int(chance() * len(self.all)) % len(self.all)

    def choose(self, tried: List[Node]) -> tuple[Node, float]:
        """The node to ask next, and for how long to wait before. A request has ``tried`` these."""
        now_s = self.clock()
        begin = self._preferred
        order = self.all[begin:] + self.all[:begin]
        ready = [node for node in order if node.not_before_s <= now_s]
        if ready:
            # No node is asked again before all have been asked, however long a try takes.
            return min(ready, key=tried.count), 0.0
        node = min(order, key=lambda one: one.not_before_s)
        # A new request looks whether a node that failed is back; one that is overloaded is spared.
        if not tried and not node.asked_for_pause:
            return node, 0.0
        return node, node.not_before_s - now_s

    def succeeded(self, node: Node) -> None:
        node.failures = 0
        node.not_before_s = 0.0
        self._preferred = self.all.index(node)

    def failed(self, node: Node, retry_after_s: Optional[float] = None) -> None:
        """Keeps requests from the node for a while."""
        node.failures = min(node.failures + 1, 30)
        node.asked_for_pause = retry_after_s is not None
        if retry_after_s is not None:
            pause_s = retry_after_s * (1.0 + 0.25 * self._chance())
        else:
            longest_s = self.retry.first_pause_s * 2.0 ** (node.failures - 1)
            pause_s = min(longest_s, self.retry.longest_pause_s) * (0.5 + 0.5 * self._chance())
        node.not_before_s = self.clock() + pause_s


@dataclass(frozen=True)
class Answered:
    """A reply with success, and whether an earlier try may have been carried out."""

    reply: Reply
    node: Node


def exchange(nodes: Nodes, request: Request) -> Plan[Answered]:
    """Sends a request until a node takes or refuses it, or the bounds of tries are reached."""
    retry = nodes.retry
    end_s = nodes.clock() + retry.deadline_s
    is_unconfirmed = False
    error: Optional[ChronosError] = None
    tried: List[Node] = []
    while len(tried) < retry.attempts:
        node, pause_s = nodes.choose(tried)
        if nodes.clock() + pause_s >= end_s:
            break
        if pause_s > 0.0:
            yield Wait(pause_s)
        tried.append(node)
        left_s = max(end_s - nodes.clock(), 0.001)
        outcome = yield Send(node, request, min(retry.try_s, left_s))
        if isinstance(outcome, Reply) and outcome.status < 300:
            nodes.succeeded(node)
            return Answered(outcome, node)
        error, may_retry = _failure(nodes, node, request, outcome, len(tried), is_unconfirmed)
        is_unconfirmed = error.unconfirmed
        if not may_retry:
            raise error
    if error is None:
        reason = "all nodes have asked for a longer pause than the deadline of a request"
        raise ChronosError(None, reason, kind="no-answer", attempts=len(tried), advice="try later")
    raise error


def _failure(
    nodes: Nodes, node: Node, request: Request, outcome: Outcome, attempt: int, was: bool
) -> tuple[ChronosError, bool]:
    """What a try that failed tells, and whether another one may follow."""
    if not isinstance(outcome, Reply):
        nodes.failed(node)
        is_heard = isinstance(outcome, NoAnswer)
        reason = outcome.reason if isinstance(outcome, (NoAnswer, NotSent)) else "no outcome"
        error = ChronosError(
            None,
            reason,
            kind="no-answer",
            node=node.url,
            attempts=attempt,
            unconfirmed=was or is_heard,
            advice=None if was or is_heard else "see whether the node runs and can be reached",
        )
        return error, request.repeatable or not is_heard
    error = error_of(
        outcome.status,
        outcome.headers,
        outcome.body,
        node=node.url,
        attempts=attempt,
        unconfirmed=was,
    )
    retry_after_s = _retry_after_s(outcome)
    if outcome.status == 429 and retry_after_s is not None:
        nodes.failed(node, retry_after_s)
        return error, True
    if outcome.status in (500, 502, 503, 504):
        nodes.failed(node, retry_after_s)
        # Only a node that has reached a limit says for certain that nothing was stored.
        is_certain = error.kind == "limit"
        error.unconfirmed = was or not is_certain
        return error, request.repeatable or is_certain
    # The node is there, and has judged the request.
    nodes.succeeded(node)
    return error, False


def _retry_after_s(reply: Reply) -> Optional[float]:
    text = reply.headers.get("retry-after")
    if text is None:
        return None
    # A date is what only a proxy sends.
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else 1.0
