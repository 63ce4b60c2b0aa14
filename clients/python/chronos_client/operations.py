"""The requests of the API as plans, for the sync and the asyncio client."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any, Dict, Generic, List, Mapping, Optional, Tuple, TypeVar, Union
from urllib.parse import quote, urlencode

from .documents import add_used, query_of, read_counts, read_id, read_letter, read_state
from .errors import ChronosError
from .exchange import Answered, Nodes, Plan, Request, exchange
from .timers import Counts, DeadLetter, Name, Ref, Timer, TimerState, Used, Written

T = TypeVar("T")
Moment = Union[None, str, int, float]


@dataclass(frozen=True)
class Page(Generic[T]):
    """A page of a list. ``incomplete`` has a sentence for each node that was not reached."""

    items: List[T]
    incomplete: Tuple[str, ...]
    cursor: Optional[str]


def path_of(ref: Ref) -> str:
    """The path of a timer."""
    if isinstance(ref, Name):
        return "/timers/by-name/" + quote(ref.text, safe="")
    if not ref:
        raise ValueError("expected the id of a timer, got an empty text")
    return "/timers/" + quote(ref, safe="")


def list_query(
    tag: Optional[str],
    host: Optional[str],
    name_prefix: Optional[str],
    due_before: Moment,
    due_after: Moment,
    state: Optional[str],
    page_size: int,
) -> Dict[str, str]:
    """The query of a list."""
    return query_of(
        tag=tag,
        host=host,
        name_prefix=name_prefix,
        due_before=None if due_before is None else str(due_before),
        due_after=None if due_after is None else str(due_after),
        state=state,
        limit=page_size,
    )


class Operations:
    """All that a client asks of a cluster."""

    def __init__(self, nodes: Nodes, token: Optional[str]) -> None:
        self.nodes = nodes
        self._headers = {"Accept": "application/problem+json, application/json"}
        if token is not None:
            if not token.isascii() or not token.isprintable() or " " in token:
                raise ValueError("expected a token without blanks and line ends, got another text")
            self._headers["Authorization"] = f"Bearer {token}"

    def _ask(
        self,
        method: str,
        target: str,
        *,
        body: bytes = b"",
        headers: Optional[Mapping[str, str]] = None,
        repeatable: bool = True,
    ) -> Plan[Answered]:
        all_headers = {**self._headers, **(headers or {})}
        for name, value in all_headers.items():
            if not value.isascii() or not value.isprintable():
                raise ValueError(f"{name}: expected visible ASCII and blanks, got other characters")
        request = Request(method, target, all_headers, body, repeatable)
        return exchange(self.nodes, request)

    def create(self, timer: Timer, key: Optional[str], has_key: bool) -> Plan[Written]:
        headers = {"Idempotency-Key": key or str(uuid.uuid4())} if has_key or key else {}
        answered = yield from self._ask(
            "POST", "/timers", body=_body(timer), headers=headers, repeatable=bool(headers)
        )
        return _written(answered)

    def put(
        self, ref: Ref, timer: Timer, if_match: Optional[str], only_create: bool
    ) -> Plan[Written]:
        headers = _condition(ref, if_match)
        if only_create:
            if headers:
                raise ValueError("expected if_match or only_create, got both")
            headers = {"If-None-Match": "*"}
        answered = yield from self._ask(
            "PUT", path_of(ref), body=_body(timer), headers=headers
        )
        return _written(answered)

    def get(self, ref: Ref) -> Plan[TimerState]:
        answered = yield from self._ask("GET", path_of(ref))
        document = _document(answered)
        id = ref if isinstance(ref, str) else None
        return read_state(document, id=id, etag=answered.reply.headers.get("etag"))

    def delete(self, ref: Ref, if_match: Optional[str]) -> Plan[None]:
        yield from self._ask("DELETE", path_of(ref), headers=_condition(ref, if_match))

    def act(self, ref: Ref, action: str, if_match: Optional[str]) -> Plan[Written]:
        headers = {} if if_match is None else {"If-Match": if_match}
        # Two runs are two pops, unless both are of one version.
        repeatable = action != "run-now" or if_match is not None
        answered = yield from self._ask(
            "POST", f"{path_of(ref)}/{action}", headers=headers, repeatable=repeatable
        )
        return _written(answered)

    def timers(self, query: Mapping[str, str], cursor: Optional[str]) -> Plan[Page[TimerState]]:
        document = yield from self._page("GET", "/timers", query, cursor)
        items = [read_state(item, read_id(item["location"])) for item in document["timers"]]
        return Page(items, tuple(document.get("incomplete", ())), document.get("cursor"))

    def count(self, histogram: bool) -> Plan[Counts]:
        target = "/timers/count" + ("" if histogram else "?histogram=false")
        answered = yield from self._ask("GET", target)
        return read_counts(_document(answered))

    def letters(self, query: Mapping[str, str], cursor: Optional[str]) -> Plan[Page[DeadLetter]]:
        document = yield from self._page("GET", "/dead-letters", query, cursor)
        items = [read_letter(one, read_id(one["location"])) for one in document["dead-letters"]]
        return Page(items, tuple(document.get("incomplete", ())), document.get("cursor"))

    def letter(self, id: str) -> Plan[DeadLetter]:
        answered = yield from self._ask("GET", _letter_path(id))
        return read_letter(_document(answered), id=id)

    def replay(self, id: str) -> Plan[Written]:
        answered = yield from self._ask("POST", _letter_path(id) + "/replay")
        return _written(answered)

    def delete_letter(self, id: str) -> Plan[None]:
        try:
            yield from self._ask("DELETE", _letter_path(id))
        except ChronosError as error:
            # An earlier try deleted the letter.
            if not (error.status == 404 and error.unconfirmed):
                raise

    def use_letters(self, query: Mapping[str, str], is_replay: bool) -> Plan[Used]:
        """Replays or deletes all dead letters of a query, page by page."""
        method, target = "DELETE", "/dead-letters"
        if is_replay:
            method, target = "POST", "/dead-letters/replay"
        used, cursor = Used(0, 0, ()), None
        while True:
            document = yield from self._page(method, target, query, cursor)
            used = add_used(used, document, "replayed" if is_replay else "deleted")
            cursor = document.get("cursor")
            if cursor is None:
                return used

    def ping(self) -> Plan[None]:
        yield from self._ask("GET", "/ping")

    def _page(
        self, method: str, path: str, query: Mapping[str, str], cursor: Optional[str]
    ) -> Plan[Dict[str, Any]]:
        parameters = {**query, **({} if cursor is None else {"cursor": cursor})}
        target = path + ("?" + urlencode(parameters, quote_via=quote) if parameters else "")
        answered = yield from self._ask(method, target)
        return _document(answered)


def _body(timer: Timer) -> bytes:
    document = timer.document()
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def _letter_path(id: str) -> str:
    if not id:
        raise ValueError("expected the id of a dead letter, got an empty text")
    return "/dead-letters/" + quote(id, safe="")


def _condition(ref: Ref, if_match: Optional[str]) -> Dict[str, str]:
    if if_match is None:
        return {}
    if not isinstance(ref, Name):
        raise ValueError("expected a Name beside if_match: a write under an id has no condition")
    return {"If-Match": if_match}


def _written(answered: Answered) -> Written:
    headers = answered.reply.headers
    location = headers.get("location")
    if location is None:
        raise _strange(answered, "a Location")
    return Written(read_id(location), headers.get("etag"))


def _document(answered: Answered) -> Dict[str, Any]:
    try:
        document = json.loads(answered.reply.body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise _strange(answered, "a JSON object")
    return document


def _strange(answered: Answered, expected: str) -> ChronosError:
    return ChronosError(
        answered.reply.status,
        f"expected {expected} in the answer, got none",
        kind="no-answer",
        node=answered.node.url,
        advice="see whether a node of Chronos listens there",
    )
