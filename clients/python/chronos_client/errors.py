"""The one exception of the client: what was refused, why, and what to do about that."""

from __future__ import annotations

import json
from typing import Mapping, Optional

_URN = "urn:chronos:error:"

# By the kind of the error (docs/api.md, "Problems").
_ADVICE = {
    "document": "send another timer",
    "request": "send another request",
    "unauthorized": "show a token of the node's auth.tokens_file",
    "forbidden": "ask for a token with more rights",
    "no-path": "look at the path",
    "no-timer": "create the timer; there is none under this id or name",
    "method": "use another method",
    "too-slow": "send the whole request in time",
    "conflict": "read the timer and decide anew",
    "too-long": "send less",
    "quota": "wait, delete timers, or ask for a higher limit",
    "not-implemented": "send a request that the server implements",
    "limit": "try again later; nothing was stored",
    "unconfirmed": "send the same request again; the write may count",
    "unavailable": "try another node, or later",
    "failure": "look into the log of the node",
}

# For answers without a kind, as those of a proxy.
_KIND_OF_STATUS = {
    400: "request",
    401: "unauthorized",
    403: "forbidden",
    404: "no-path",
    405: "method",
    408: "too-slow",
    409: "conflict",
    412: "conflict",
    413: "too-long",
    414: "too-long",
    422: "conflict",
    429: "quota",
    431: "too-long",
    501: "not-implemented",
    503: "unavailable",
    505: "not-implemented",
}

_UNKNOWN_FATE = (
    "an earlier try of this request got no answer, so the request may be done: read the timer"
)


class ChronosError(Exception):
    """A request that was refused, or that no node answered.

    ``status`` is the HTTP status of the last answer; ``None`` if there was none.
    ``reason`` says what was expected and what came. ``advice`` says what to do.
    ``kind`` is the kind of the error, for programs: a word of docs/api.md, "Problems", or
    ``no-answer``. ``member`` is the path of the member of the timer that the reason is about.
    ``node`` is the node that was asked last, ``attempts`` counts the tries.
    ``unconfirmed`` says that the request may have been carried out all the same.
    """

    def __init__(
        self,
        status: Optional[int],
        reason: str,
        *,
        kind: str,
        advice: Optional[str] = None,
        member: Optional[str] = None,
        node: Optional[str] = None,
        attempts: int = 1,
        unconfirmed: bool = False,
    ) -> None:
        self.status = status
        self.reason = reason
        self.kind = kind
        usual = _UNKNOWN_FATE if unconfirmed else _ADVICE.get(kind, "")
        self.advice: str = usual if advice is None else advice
        self.member = member
        self.node = node
        self.attempts = attempts
        self.unconfirmed = unconfirmed
        super().__init__(status, reason)

    def __str__(self) -> str:
        answer = "no answer" if self.status is None else str(self.status)
        place = f" from {self.node}" if self.node else ""
        tries = f", {self.attempts} attempts" if self.attempts > 1 else ""
        advice = f" ({self.advice})" if self.advice else ""
        return f"{answer}{place}{tries}: {self.reason}{advice}"


def error_of(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    node: str,
    attempts: int,
    unconfirmed: bool,
) -> ChronosError:
    """The error that an answer tells: a problem of RFC 9457, or a reason as text."""
    kind, member = _KIND_OF_STATUS.get(status, "failure" if status >= 500 else "request"), None
    reason = headers.get("reason") or body[:500].decode("utf-8", "replace").strip()
    if headers.get("content-type", "").startswith("application/problem+json"):
        try:
            problem = json.loads(body)
        except ValueError:
            problem = None
        if isinstance(problem, dict):
            told = str(problem.get("type", ""))
            kind = told[len(_URN):] if told.startswith(_URN) else kind
            reason = str(problem.get("detail", reason))
            member = str(problem["member"]) if "member" in problem else None
    return ChronosError(
        status,
        reason or "the answer has no reason",
        kind=kind,
        member=member,
        node=node,
        attempts=attempts,
        unconfirmed=unconfirmed or kind == "unconfirmed",
        advice=_ADVICE["unconfirmed"] if kind == "unconfirmed" else None,
    )
