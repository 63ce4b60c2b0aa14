"""Both clients and both receivers over sockets."""

import asyncio
import json
import socket
import unittest
from typing import Any, Awaitable, Callable, List

from chronos_client import (
    After,
    AsyncClient,
    AsyncReceiver,
    Callback,
    ChronosError,
    Client,
    Later,
    Name,
    Pop,
    Receiver,
    Retry,
    Timer,
)

from .test_pops import ID, NOW_S, SECRET, signed
from .wires import Server, answer, ask, header, nobody, read_message

TIMER = Timer(After(5), Callback("http://127.0.0.1:9/a", "x"))
CREATED = answer(200, "", "Location: /timers/0123456789abcdef-2-00", 'ETag: "1"')
QUICK = Retry(attempts=6, first_pause_s=0.001, try_s=30.0)


class Clients(unittest.TestCase):
    """Each test runs with the client for threads, and with the one for asyncio."""

    def each(self, story: Callable[["Both"], None]) -> None:
        for is_async in (False, True):
            with self.subTest(is_async=is_async):
                both = Both(is_async)
                try:
                    story(both)
                finally:
                    both.close()

    def test_a_create_without_an_answer_is_repeated_with_its_key(self) -> None:
        def story(both: Both) -> None:
            first = Server(lambda request, count: b"")
            second = Server(lambda request, count: CREATED)
            both.use([nobody(), first.url, second.url])
            written = both.call("create", TIMER)
            self.assertEqual((written.id, written.etag), ("0123456789abcdef-2-00", '"1"'))
            sent = [one for server in (first, second) for _, one in server.requests]
            keys = {header(one, "Idempotency-Key") for one in sent}
            bodies = {one.split("\r\n\r\n")[1] for one in sent}
            self.assertEqual((len(keys), len(bodies)), (1, 1), sent)
            self.assertGreaterEqual(len(keys.pop()), 32)

        self.each(story)

    def test_a_create_without_a_key_is_not_repeated_unless_it_was_refused(self) -> None:
        def story(both: Both) -> None:
            broken = Server(lambda request, count: b"")
            both.use([broken.url])
            with self.assertRaises(ChronosError) as caught:
                both.call("create", TIMER, has_key=False)
            self.assertTrue(caught.exception.unconfirmed)
            self.assertEqual(len(broken.requests), 1)
            self.assertEqual(header(broken.requests[0][1], "Idempotency-Key"), "")

        self.each(story)

    def test_connections_are_kept_and_closed_ones_are_not_used(self) -> None:
        def story(both: Both) -> None:
            last = answer(200, "OK", "Connection: close")
            server = Server(lambda request, count: last if count == 1 else answer(200, "OK"))
            both.use([server.url])
            for _ in range(4):
                both.call("ping")
            self.assertEqual([connection for connection, _ in server.requests], [1, 1, 2, 2])

        self.each(story)

    def test_chunks_and_interim_answers_are_read(self) -> None:
        document = json.dumps({"timers": [], "incomplete": ["a node is missing"]})
        half = len(document) // 2
        pieces = [document[:half], document[half:], ""]
        chunks = "".join(f"{len(piece):x}\r\n{piece}\r\n" for piece in pieces)
        text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

        def story(both: Both) -> None:
            server = Server(lambda request, count: (text + chunks).encode())
            both.use([server.url])
            items, incomplete = both.listed(tag="a b&c")
            self.assertEqual((items, incomplete), ([], ["a node is missing"]))
            self.assertIn("GET /timers?tag=a%20b%26c&limit=100 ", server.requests[0][1])

        self.each(story)

    def test_pages_are_asked_for_until_the_last(self) -> None:
        item = {**TIMER.document(), "location": "/timers/0123456789abcdef-2-00", "state": "armed"}
        pages = [{"timers": [item] * 2, "cursor": "c=1"}, {"timers": [], "cursor": "c2"}]
        pages.append({"timers": [item]})

        def story(both: Both) -> None:
            server = Server(lambda request, count: answer(200, json.dumps(pages[count])))
            both.use([server.url])
            items, _ = both.listed()
            self.assertEqual([one.id for one in items], ["0123456789abcdef-2-00"] * 3)
            self.assertIn("cursor=c%3D1 ", server.requests[1][1])

        self.each(story)

    def test_paths_headers_and_conditions(self) -> None:
        def story(both: Both) -> None:
            server = Server(lambda request, count: CREATED)
            both.use([server.url], token="chr_abc")
            both.call("create_or_replace", "a/b \u00e9", TIMER, only_create=True)
            both.call("update", Name("n"), TIMER)
            both.call("update", "id-2", TIMER)
            both.call("delete", Name("n"), if_match='"7"')
            both.call("pause", "id-2")
            sent = [one for _, one in server.requests]
            self.assertEqual(
                [one.split(" HTTP")[0] for one in sent],
                [
                    "PUT /timers/by-name/a%2Fb%20%C3%A9",
                    "PUT /timers/by-name/n",
                    "PUT /timers/id-2",
                    "DELETE /timers/by-name/n",
                    "POST /timers/id-2/pause",
                ],
            )
            self.assertEqual(header(sent[0], "If-None-Match"), "*")
            matches = [header(one, "If-Match") for one in sent]
            self.assertEqual(matches, ["", "*", "", '"7"', ""])
            self.assertEqual({header(one, "Authorization") for one in sent}, {"Bearer chr_abc"})
            with self.assertRaises(ValueError):
                both.call("delete", "id-2", if_match='"7"')
            with self.assertRaises(ValueError):
                both.call("create", TIMER, key="a\r\nX-Smuggled: 1")
            self.assertEqual(len(server.requests), 5)

        self.each(story)

    def test_what_is_no_answer_of_a_node_is_told(self) -> None:
        def story(both: Both) -> None:
            server = Server(lambda request, count: answer(200, "<html>"))
            both.use([server.url])
            for method in ("count", "get"):
                with self.assertRaises(ChronosError) as caught:
                    both.call(method, *(["id-2"] if method == "get" else []))
                self.assertIn("expected a JSON object", caught.exception.reason)
            garbage = Server(lambda request, count: b"SSH-2.0-x\r\n\r\n")
            both.use([garbage.url])
            with self.assertRaises(ChronosError) as caught:
                both.call("ping")
            self.assertIsNone(caught.exception.status)

        self.each(story)


class Both:
    """One of the two clients, called from a thread."""

    def __init__(self, is_async: bool) -> None:
        self._is_async = is_async
        self._loop = asyncio.new_event_loop() if is_async else None
        self._client: Any = None

    def close(self) -> None:
        if self._client is not None:
            self.call("close")
        if self._loop is not None:
            self._loop.close()

    def use(self, urls: List[str], **more: Any) -> None:
        if self._client is not None:
            self.call("close")
        self._client = (AsyncClient if self._is_async else Client)(urls, retry=QUICK, **more)
        # The story names the nodes in the order in which they are asked.
        self._client._operations.nodes._preferred = 0

    def call(self, method: str, *words: Any, **more: Any) -> Any:
        result = getattr(self._client, method)(*words, **more)
        return result if self._loop is None else self._loop.run_until_complete(result)

    def listed(self, **query: Any) -> Any:
        listing = self._client.list(**query)
        if self._loop is None:
            return list(listing), listing.incomplete

        async def collect() -> List[Any]:
            return [item async for item in listing]

        return self._loop.run_until_complete(collect()), listing.incomplete


def request(headers: "dict[str, str]", body: bytes, *more: str) -> bytes:
    lines = ["POST /pop HTTP/1.1", "Host: a", *more]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


class Servers(unittest.TestCase):
    """Both callback servers."""

    def check(self, port: int, pops: List[Pop]) -> None:
        good = signed(b"hello", SECRET)
        self.assertIn(" 401 ", ask(port, request(good, b"hell0")))
        self.assertEqual(pops, [])
        for _ in range(2):
            self.assertIn(" 200 ", ask(port, request(good, b"hello")))
        self.assertEqual([pop.webhook_id for pop in pops], [ID])
        later = ask(port, request(signed(b"later", SECRET, id="a-b-1"), b"later"))
        self.assertIn(" 503 ", later)
        self.assertEqual(header(later, "Retry-After"), "2")
        chunked = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        self.assertIn(" 411 ", ask(port, chunked))
        long = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n"
        self.assertIn(" 413 ", ask(port, long))
        self.assertNotIn(" 200 ", ask(port, b"GET /pop HTTP/7.0\r\n\r\n"))
        self.assertEqual(ask_twice(port, good), 2, "the connection is kept")

    def test_the_server_for_threads(self) -> None:
        pops: List[Pop] = []

        def handle(pop: Pop) -> None:
            if pop.body == b"later":
                raise Later(2)
            pops.append(pop)

        receiver = Receiver(handle, [SECRET], clock=lambda: float(NOW_S))
        with receiver.serve("127.0.0.1", 0) as server:
            self.check(server.port, pops)

    def test_the_server_for_asyncio(self) -> None:
        pops: List[Pop] = []

        async def handle(pop: Pop) -> None:
            if pop.body == b"later":
                raise Later(2)
            pops.append(pop)

        async def story() -> None:
            receiver = AsyncReceiver(handle, [SECRET], clock=lambda: float(NOW_S))
            async with await receiver.serve("127.0.0.1", 0) as server:
                asking: Awaitable[None] = asyncio.get_running_loop().run_in_executor(
                    None, self.check, server.port, pops
                )
                await asking

        asyncio.run(story())


def ask_twice(port: int, headers: "dict[str, str]") -> int:
    """Sends two callbacks on one connection. Returns how many were answered 200."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as stream:
        count = 0
        for _ in range(2):
            stream.sendall(request(headers, b"hello"))
            count += " 200 " in read_message(stream)
        return count
