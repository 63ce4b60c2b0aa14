"""What a receiver makes of a callback, whatever brings the bytes: no socket, no clock."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple, Union

from .signatures import Unsigned, key_of, verify
from .timers import read_moment

#: A due time is told by the wall clock of the node that calls, and those differ.
_SAME_DUE = timedelta(seconds=1)


class Gone(Exception):
    """Raised by a handler: the timer is to end, no further pop is wanted (410)."""


class Later(Exception):
    """Raised by a handler: the pop is to be tried again, not before so many seconds (503)."""

    def __init__(self, retry_after_s: Optional[int] = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(retry_after_s)


@dataclass(frozen=True)
class Pop:
    """A callback.

    ``timer_id`` begins with the 16 digits of the timer's id. ``timer_id`` is ``None`` where neither
    ``X-Timer-Id`` nor a signature tells the id. ``path`` is that of the callback's URI.
    Of a signed callback the body, ``webhook_id`` and the time are signed, other headers are not.
    ``timer_id`` never contradicts what is signed.
    """

    timer_id: Optional[str]
    sequence: int
    body: bytes
    method: str
    path: str
    content_type: str
    replay: Optional[int]
    attempt: Optional[int]
    due: Optional[datetime]
    webhook_id: Optional[str]
    headers: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class Answer:
    """What the node is told."""

    status: int
    reason: str = ""
    retry_after_s: Optional[int] = None

    def headers(self) -> List[Tuple[str, str]]:
        """The headers beside those that the server has itself."""
        lines = [("Content-Type", "text/plain; charset=utf-8")]
        if self.retry_after_s is not None:
            lines.append(("Retry-After", str(self.retry_after_s)))
        return lines


_DONE = Answer(200)
_RUNS = Answer(503, "an earlier attempt at this pop is under way", 1)


class Memory:
    """The pops of the last time, by their keys. The oldest leaves first when there are too many."""

    def __init__(self, pops_max: int, keep_s: float, clock: Callable[[], float]) -> None:
        if pops_max < 1 or keep_s <= 0:
            raise ValueError("expected room for one pop at least, for some time")
        self._pops_max = pops_max
        self._keep_s = keep_s
        self._clock = clock
        self._lock = threading.Lock()
        self._under_way: Set[str] = set()
        self._over: OrderedDict[str, Tuple[float, Optional[datetime], Answer]] = OrderedDict()

    def begin(self, key: str, due: Optional[datetime]) -> Optional[Answer]:
        """Begins a pop; returns the answer if the pop is over or under way already."""
        with self._lock:
            self._forget()
            over = self._over.get(key)
            if over is not None and _is_same(over[1], due):
                return over[2]
            if key in self._under_way:
                return _RUNS
            self._under_way.add(key)
            return None

    def end(self, key: str, due: Optional[datetime], answer: Answer) -> None:
        """Ends a pop. One that is to be tried again is forgotten."""
        with self._lock:
            self._under_way.discard(key)
            if answer.status < 300 or answer.status == 410:
                self._over.pop(key, None)
                self._over[key] = (self._clock(), due, answer)
                self._forget()

    def __len__(self) -> int:
        return len(self._over)

    def _forget(self) -> None:
        before_s = self._clock() - self._keep_s
        while self._over:
            at_s = next(iter(self._over.values()))[0]
            if at_s >= before_s and len(self._over) <= self._pops_max:
                return
            self._over.popitem(last=False)


def _is_same(one: Optional[datetime], other: Optional[datetime]) -> bool:
    return one is None or other is None or abs(one - other) <= _SAME_DUE


@dataclass(frozen=True)
class Begun:
    """A pop for the handler; ``key`` is ``None`` where nothing tells a repeat from another pop."""

    pop: Pop
    key: Optional[str]


class Gate:
    """Verifies callbacks and drops repeats."""

    def __init__(
        self,
        secrets: Sequence[str],
        unsigned: bool,
        skew_s: float,
        memory: Memory,
        clock: Callable[[], float],
    ) -> None:
        self._is_unsigned = unsigned
        self._skew_s = skew_s
        self._memory = memory
        self._clock = clock
        self._keys: Tuple[bytes, ...] = ()
        self.set_secrets(secrets)

    def set_secrets(self, secrets: Sequence[str]) -> None:
        """Replaces the secrets: the new one, and the old one until no node signs with that."""
        if isinstance(secrets, str):
            raise ValueError("expected a list of secrets, got one text")
        if bool(secrets) == self._is_unsigned:
            raise ValueError("expected secrets, or unsigned=True without secrets")
        self._keys = tuple(key_of(secret) for secret in secrets)

    def begin(
        self, method: str, path: str, headers: Iterable[Tuple[str, str]], body: bytes
    ) -> Union[Answer, Begun]:
        """Returns the pop for the handler, or the answer where the handler is not asked."""
        told: Dict[str, str] = {}
        for name, value in headers:
            name = name.lower()
            if name in told and name.startswith(("webhook-", "x-")):
                return Answer(401, f"{name}: expected one, got several")
            told[name] = value
        if self._keys:
            try:
                _verify(self._keys, told, body, self._clock(), self._skew_s)
            except Unsigned as error:
                return Answer(401, str(error))
        pop = _pop_of(method, path, told, body, is_signed=bool(self._keys))
        if pop is None:
            return Answer(400, "X-Sequence-Number: expected a number")
        key = _key_of(pop)
        if key is not None:
            known = self._memory.begin(key, pop.due)
            if known is not None:
                return known
        return Begun(pop, key)

    def end(self, begun: Begun, error: Optional[BaseException]) -> Answer:
        """Returns the answer after the handler has ended, in order or with an error."""
        answer = _DONE
        if isinstance(error, Gone):
            answer = Answer(410, "the timer is not wanted any more")
        elif isinstance(error, Later):
            answer = Answer(503, "try again later", error.retry_after_s)
        elif error is not None:
            answer = Answer(503, "the handler failed")
        if begun.key is not None:
            self._memory.end(begun.key, begun.pop.due, answer)
        return answer


def _verify(
    keys: Sequence[bytes], told: Mapping[str, str], body: bytes, now_s: float, skew_s: float
) -> None:
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    id, timestamp, signatures = (told.get(name, "") for name in names)
    verify(keys, (id, timestamp, signatures), body, now_s, skew_s)


def _pop_of(
    method: str, path: str, told: Mapping[str, str], body: bytes, is_signed: bool
) -> Optional[Pop]:
    sequence = _number(told.get("x-sequence-number"))
    if sequence is None:
        return None
    webhook_id = told.get("webhook-id") if is_signed else None
    timer_id = told.get("x-timer-id")
    if webhook_id:
        # timer-version-number; the header is not signed, so what is signed goes before.
        signed_id = webhook_id.split("-", 1)[0]
        if timer_id is None or timer_id[:16].lower() != signed_id.lower():
            timer_id = signed_id
    try:
        due = read_moment(told["x-due-time"]) if "x-due-time" in told else None
    except ValueError:
        due = None
    return Pop(
        timer_id=timer_id,
        sequence=sequence,
        body=body,
        method=method,
        path=path,
        content_type=told.get("content-type", ""),
        replay=_number(told.get("x-replay")),
        attempt=_number(told.get("x-attempt")),
        due=due,
        webhook_id=webhook_id,
        headers=told,
    )


def _number(text: Optional[str]) -> Optional[int]:
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) <= 20
    return int(text) if text is not None and is_number else None


def _key_of(pop: Pop) -> Optional[str]:
    """What the attempts at one pop share, and no other pop has.

    A signed id says it. Without one a timer that was replaced begins with number 1 again, and only
    its due time tells the first pop from that of the timer before.
    """
    if pop.webhook_id:
        return pop.webhook_id
    if pop.timer_id is None or pop.due is None:
        return None
    return f"{pop.timer_id[:16]}/{pop.sequence}/{pop.replay}/{pop.path}"
