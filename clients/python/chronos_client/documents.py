"""Reads the documents that nodes answer."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any, Dict, List, Mapping, Optional, Union

from .timers import (
    After,
    At,
    Callback,
    Counts,
    Cron,
    DeadLetter,
    Every,
    RetryPolicy,
    Tag,
    Timer,
    TimerState,
    Timing,
    Used,
    read_moment,
)

Document = Mapping[str, Any]


def read_timer(document: Document) -> Timer:
    """The definition in what GET shows."""
    tags = document.get("statistics", {}).get("tag-info", [])
    return Timer(
        timing=_read_timing(document["timing"]),
        callback=_read_callback(document["callback"]),
        tags=tuple(Tag(tag["type"], tag.get("count", 1)) for tag in tags),
        replicas=document.get("reliability", {}).get("replication-factor"),
    )


def _read_timing(timing: Document) -> Timing:
    window = timing.get("window")
    if "cron" in timing:
        return Cron(
            timing["cron"],
            time_zone=timing.get("time-zone"),
            catch_up_window=timing.get("catch-up-window"),
            end_at=read_moment(timing["end-at"]) if "end-at" in timing else None,
            window=window,
        )
    if "at" in timing:
        return At(read_moment(timing["at"]), window=window)
    interval = timing["interval"]
    repeat_for = timing.get("repeat-for", interval)
    if repeat_for == interval:
        return After(interval, window=window)
    return Every(interval, repeat_for, window=window)


def _read_callback(callback: Document) -> Callback:
    http = callback["http"]
    body: Union[str, bytes] = http.get("opaque", "")
    if "opaque-base64" in http:
        body = base64.b64decode(http["opaque-base64"])
    retry = callback.get("retry")
    return Callback(
        uri=http["uri"],
        body=body,
        method=http.get("method"),
        content_type=http.get("content-type"),
        headers=dict(http.get("headers", {})),
        retry=None if retry is None else _read_retry(retry),
        timeout=callback.get("timeout"),
        dead_letter_uri=callback.get("dead-letter", {}).get("uri"),
        on_success=callback.get("on-success"),
        on_failure=callback.get("on-failure"),
    )


def _read_retry(retry: Document) -> RetryPolicy:
    return RetryPolicy(
        max_attempts=retry.get("max-attempts"),
        max_age=retry.get("max-age"),
        initial=retry.get("initial"),
        multiplier=retry.get("multiplier"),
        max=retry.get("max"),
        jitter=retry.get("jitter"),
    )


def read_id(location: str) -> str:
    """The opaque word of a timer, out of its path."""
    return location.rsplit("/", 1)[-1]


def read_state(document: Document, id: Optional[str], etag: Optional[str] = None) -> TimerState:
    """A timer as GET and lists show it."""
    timing = document["timing"]
    due_in = document.get("due-in-ms")
    return TimerState(
        id=id,
        timer=read_timer(document),
        sequence_number=timing.get("sequence-number", 0),
        start_time_delta=timedelta(milliseconds=timing.get("start-time-delta", 0)),
        name=document.get("name"),
        paused=bool(document.get("paused", False)),
        report=document.get("report"),
        next_at=read_moment(timing["next-at"]) if "next-at" in timing else None,
        etag=etag,
        state=document.get("state"),
        due_in=None if due_in is None else timedelta(milliseconds=due_in),
        due_at=read_moment(document["due-at"]) if "due-at" in document else None,
        raw=document,
    )


def read_letter(document: Document, id: str) -> DeadLetter:
    """A dead letter, alone or of a page."""
    letter = document["dead-letter"]
    answer: Optional[bytes] = None
    if "answer" in letter:
        answer = str(letter["answer"]).encode("utf-8")
    elif "answer-base64" in letter:
        answer = base64.b64decode(letter["answer-base64"])
    return DeadLetter(
        id=id,
        timer=read_timer(document),
        name=document.get("name"),
        reason=letter["reason"],
        attempts=letter["attempts"],
        failure=letter["failure"],
        status=letter.get("status"),
        answer=answer,
        sequence_number=letter["sequence-number"],
        given_up_at=read_moment(letter["given-up-at"]),
        kept_until=read_moment(letter["kept-until"]),
        uri_failed=bool(letter.get("uri-failed", False)),
        replays=document.get("replays", 0),
        raw=document,
    )


def read_counts(document: Document) -> Counts:
    """The answer of GET /timers/count."""
    return Counts(
        timers=document["timers"],
        by_state=dict(document["by-state"]),
        due=dict(document["due"]) if "due" in document else None,
        by_tag=dict(document["by-tag"]),
        by_host=dict(document["by-host"]),
        incomplete=tuple(document.get("incomplete", ())),
        raw=document,
    )


def add_used(so_far: Used, document: Document, member: str) -> Used:
    """Adds what a page of dead letters that were used tells."""
    missing: List[str] = list(so_far.incomplete)
    missing += [one for one in document.get("incomplete", ()) if one not in missing]
    return Used(
        done=so_far.done + int(document.get(member, 0)),
        refused=so_far.refused + int(document.get("refused", 0)),
        incomplete=tuple(missing),
    )


def query_of(**parameters: Union[None, str, int]) -> Dict[str, str]:
    """The parameters of a query that are there, by the names that the service has for them."""
    given = {name.replace("_", "-"): value for name, value in parameters.items()}
    return {name: str(value) for name, value in given.items() if value is not None}
