"""What a timer says: when it pops, where the callback goes, how it is tried again."""

from __future__ import annotations

import base64
import math
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple, Union

#: Seconds, a ``timedelta``, or text in the form of ISO 8601 such as ``PT15M``.
Duration = Union[int, float, str, timedelta]

_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)")


def duration(value: Duration) -> Union[int, float, str]:
    """The form of a duration in a document; a ``timedelta`` is rounded up to milliseconds."""
    if isinstance(value, timedelta):
        ms = -(-value // timedelta(milliseconds=1))
        return ms // 1000 if ms % 1000 == 0 else ms / 1000
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"expected a finite number of seconds, got {value}")
    return value


def moment(value: datetime) -> str:
    """The form of RFC 3339 of a moment."""
    if value.tzinfo is None:
        raise ValueError(f"expected a datetime with a time zone, got {value.isoformat()}")
    return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def read_moment(text: str) -> datetime:
    """Reads a moment of RFC 3339. Digits beyond microseconds are cut off."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ValueError(f"expected a time of RFC 3339, got {text!r}")
    day, time, fraction, offset = match.groups()
    fraction = ((fraction or "") + "000000")[:6]
    offset = "+00:00" if offset in "Zz" else offset
    return datetime.fromisoformat(f"{day}T{time}.{fraction}{offset}")


@dataclass(frozen=True)
class After:
    """Pops once, after this time."""

    delay: Duration
    window: Optional[Duration] = None

    def document(self) -> Dict[str, Any]:
        return {"interval": duration(self.delay)}


@dataclass(frozen=True)
class At:
    """Pops once, at this moment, which has a time zone."""

    moment: datetime
    window: Optional[Duration] = None

    def document(self) -> Dict[str, Any]:
        return {"at": moment(self.moment)}


@dataclass(frozen=True)
class Every:
    """Pops after each interval, for as long as ``repeat_for`` says."""

    interval: Duration
    repeat_for: Duration
    window: Optional[Duration] = None

    def document(self) -> Dict[str, Any]:
        return {"interval": duration(self.interval), "repeat-for": duration(self.repeat_for)}


@dataclass(frozen=True)
class Cron:
    """Pops at the moments of an expression, in a zone of the IANA database (UTC if left out)."""

    expression: str
    time_zone: Optional[str] = None
    catch_up_window: Optional[Duration] = None
    end_at: Optional[datetime] = None
    window: Optional[Duration] = None

    def document(self) -> Dict[str, Any]:
        timing: Dict[str, Any] = {"cron": self.expression}
        if self.time_zone is not None:
            timing["time-zone"] = self.time_zone
        if self.catch_up_window is not None:
            timing["catch-up-window"] = duration(self.catch_up_window)
        if self.end_at is not None:
            timing["end-at"] = moment(self.end_at)
        return timing


Timing = Union[After, At, Every, Cron]


@dataclass(frozen=True)
class RetryPolicy:
    """How a pop is tried again; what is left out has the default of docs/api.md."""

    max_attempts: Optional[int] = None
    max_age: Optional[Duration] = None
    initial: Optional[Duration] = None
    multiplier: Optional[float] = None
    max: Optional[Duration] = None
    jitter: Optional[float] = None

    def document(self) -> Dict[str, Any]:
        members = {
            "max-attempts": self.max_attempts,
            "max-age": None if self.max_age is None else duration(self.max_age),
            "initial": None if self.initial is None else duration(self.initial),
            "multiplier": self.multiplier,
            "max": None if self.max is None else duration(self.max),
            "jitter": self.jitter,
        }
        return {name: value for name, value in members.items() if value is not None}


@dataclass(frozen=True)
class Callback:
    """The request that is made when the timer pops.

    A ``body`` of text is sent in UTF-8. One of bytes needs a cluster without nodes of the original
    service, as all members but ``uri`` do.
    """

    uri: str
    body: Union[str, bytes] = ""
    method: Optional[str] = None
    content_type: Optional[str] = None
    headers: Mapping[str, str] = field(default_factory=dict)
    retry: Optional[RetryPolicy] = None
    timeout: Optional[Duration] = None
    dead_letter_uri: Optional[str] = None
    on_success: Optional[str] = None
    on_failure: Optional[str] = None

    def document(self) -> Dict[str, Any]:
        http: Dict[str, Any] = {"uri": self.uri}
        if isinstance(self.body, bytes):
            http["opaque-base64"] = base64.b64encode(self.body).decode("ascii")
        else:
            http["opaque"] = self.body
        if self.method is not None:
            http["method"] = self.method
        if self.content_type is not None:
            http["content-type"] = self.content_type
        if self.headers:
            http["headers"] = dict(self.headers)
        callback: Dict[str, Any] = {"http": http}
        if self.retry is not None:
            callback["retry"] = self.retry.document()
        if self.timeout is not None:
            callback["timeout"] = duration(self.timeout)
        if self.dead_letter_uri is not None:
            callback["dead-letter"] = {"uri": self.dead_letter_uri}
        if self.on_success is not None:
            callback["on-success"] = self.on_success
        if self.on_failure is not None:
            callback["on-failure"] = self.on_failure
        return callback


@dataclass(frozen=True)
class Tag:
    """A statistics tag: how much of a type the timer counts for."""

    type: str
    count: int = 1


@dataclass(frozen=True)
class Timer:
    """What a client asks for. ``replicas`` is how many nodes hold the timer."""

    timing: Timing
    callback: Callback
    tags: Tuple[Tag, ...] = ()
    replicas: Optional[int] = None

    def document(self) -> Dict[str, Any]:
        timing = self.timing.document()
        if self.timing.window is not None:
            timing["window"] = duration(self.timing.window)
        document: Dict[str, Any] = {"timing": timing, "callback": self.callback.document()}
        if self.replicas is not None:
            document["reliability"] = {"replication-factor": self.replicas}
        if self.tags:
            tags = [{"type": tag.type, "count": tag.count} for tag in self.tags]
            document["statistics"] = {"tag-info": tags}
        return document


@dataclass(frozen=True)
class Name:
    """A name of the client's own, in place of an id."""

    text: str


#: What a timer is found by: its id, as a word, or its name.
Ref = Union[str, Name]


@dataclass(frozen=True)
class Written:
    """The answer to a write: the id to use from here on, and the version if it was told."""

    id: str
    etag: Optional[str]


@dataclass(frozen=True)
class TimerState:
    """A timer as the service shows it. ``raw`` has all members.

    ``state``, ``due_in`` and ``due_at`` are told in lists only, ``etag`` where one timer was read.
    ``id`` is ``None`` where the timer was read by its name.
    """

    id: Optional[str]
    timer: Timer
    sequence_number: int
    start_time_delta: timedelta
    name: Optional[str]
    paused: bool
    report: Optional[str]
    next_at: Optional[datetime]
    etag: Optional[str]
    state: Optional[str]
    due_in: Optional[timedelta]
    due_at: Optional[datetime]
    raw: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class DeadLetter:
    """A pop that was given up and is kept. ``raw`` has all members."""

    id: str
    timer: Timer
    name: Optional[str]
    reason: str
    attempts: int
    failure: str
    status: Optional[int]
    answer: Optional[bytes]
    sequence_number: int
    given_up_at: datetime
    kept_until: datetime
    uri_failed: bool
    replays: int
    raw: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Counts:
    """How many timers there are. ``due`` is ``None`` if the histogram was left out."""

    timers: int
    by_state: Mapping[str, int]
    due: Optional[Mapping[str, int]]
    by_tag: Mapping[str, int]
    by_host: Mapping[str, int]
    incomplete: Sequence[str]
    raw: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Used:
    """What became of the dead letters that a query named."""

    done: int
    refused: int
    incomplete: Sequence[str]
