"""Tries over several nodes, in virtual time."""

import json
import unittest
from typing import Callable, Dict, List, Optional, Tuple

from chronos_client import ChronosError, Retry
from chronos_client.exchange import (
    Answered,
    NoAnswer,
    Nodes,
    NotSent,
    Outcome,
    Reply,
    Request,
    Wait,
    exchange,
)

OK = Reply(200, {}, b"")
URLS = ["http://a:1", "http://b:2", "http://c:3"]


def problem(status: int, kind: str, **headers: str) -> Reply:
    body = {"type": f"urn:chronos:error:{kind}", "detail": f"because of {kind}", "status": status}
    told = {"content-type": "application/problem+json"}
    told.update({name.replace("_", "-"): value for name, value in headers.items()})
    return Reply(status, told, json.dumps(body).encode())


class World:
    """Nodes that answer by a script, and a clock that waits move."""

    def __init__(self, retry: Retry = Retry(), urls: Optional[List[str]] = None) -> None:
        self.now_s = 1000.0
        self.nodes = Nodes(urls or URLS, retry, lambda: self.now_s, lambda: 0.0)
        self.asked: List[Tuple[float, str]] = []

    def run(self, answer: Callable[[str], Outcome], repeatable: bool = True) -> Answered:
        plan = exchange(self.nodes, Request("POST", "/timers", {}, b"{}", repeatable))
        outcome: Outcome = None
        while True:
            try:
                step = plan.send(outcome)
            except StopIteration as end:
                answered = end.value
                assert isinstance(answered, Answered)
                return answered
            if isinstance(step, Wait):
                self.now_s += step.pause_s
                outcome = None
            else:
                self.asked.append((self.now_s, step.node.host))
                outcome = answer(step.node.host)

    def hosts(self) -> str:
        return "".join(host for _, host in self.asked)


class Exchange(unittest.TestCase):
    def test_the_next_node_is_asked_at_once_and_stays_the_one_that_is_asked(self) -> None:
        down: Dict[str, Outcome] = {"a": NotSent("refused"), "b": problem(503, "unavailable")}
        world = World()
        answered = world.run(lambda host: down.get(host, OK))
        self.assertEqual(answered.node.host, "c")
        self.assertEqual(world.hosts(), "abc")
        self.assertEqual({at for at, _ in world.asked}, {1000.0})
        world.run(lambda host: OK)
        self.assertEqual(world.hosts(), "abcc")

    def test_all_nodes_are_asked_before_one_is_asked_again_however_long_a_try_takes(self) -> None:
        world = World()

        def answer(host: str) -> Outcome:
            world.now_s += 2.0
            return OK if host == "c" else NotSent("nobody answered")

        world.run(answer)
        self.assertEqual(world.hosts(), "abc")

    def test_a_node_that_asks_for_a_pause_is_not_asked_before(self) -> None:
        world = World(urls=["http://a:1"])
        answers = [problem(429, "quota", retry_after="3"), OK]
        world.run(lambda host: answers.pop(0))
        self.assertEqual(world.asked, [(1000.0, "a"), (1003.0, "a")])
        with self.assertRaises(ChronosError):
            world.run(lambda host: problem(429, "quota", retry_after="60"))
        before = len(world.asked)
        with self.assertRaises(ChronosError) as caught:
            world.run(lambda host: OK)
        self.assertEqual(len(world.asked), before, "spared by the next request, too")
        self.assertIsNone(caught.exception.status)

    def test_a_quota_without_a_time_is_told_at_once(self) -> None:
        world = World()
        with self.assertRaises(ChronosError) as caught:
            world.run(lambda host: problem(429, "quota"))
        self.assertEqual((world.hosts(), caught.exception.status), ("a", 429))
        self.assertIn("higher limit", caught.exception.advice)

    def test_tries_and_time_are_bounded_and_pauses_grow(self) -> None:
        world = World(Retry(attempts=7, deadline_s=1e9), ["http://a:1"])
        with self.assertRaises(ChronosError) as caught:
            world.run(lambda host: NotSent("refused"))
        times = [at for at, _ in world.asked]
        pauses = [round(after - at, 6) for at, after in zip(times, times[1:])]
        self.assertEqual(pauses, [0.05, 0.1, 0.2, 0.4, 0.8, 1.6])
        self.assertEqual((caught.exception.attempts, caught.exception.unconfirmed), (7, False))
        world = World(Retry(attempts=1000, deadline_s=30.0))
        with self.assertRaises(ChronosError):
            world.run(lambda host: NotSent("refused"))
        self.assertLess(world.now_s, 1030.0)
        self.assertLess(len(world.asked), 100)

    def test_what_may_be_done_is_repeated_only_if_that_changes_nothing(self) -> None:
        unsure: List[Outcome] = [
            NoAnswer("broke"),
            problem(503, "unconfirmed"),
            problem(503, "unavailable"),
            Reply(502, {}, b"a proxy"),
        ]
        for first in unsure:
            world = World()
            with self.assertRaises(ChronosError) as caught:
                world.run(lambda host: first, repeatable=False)
            self.assertEqual(world.hosts(), "a")
            self.assertTrue(caught.exception.unconfirmed)
            world = World()
            world.run(lambda host: first if host == "a" else OK)
            self.assertEqual(world.hosts(), "ab")
        sure: List[Outcome] = [NotSent("refused"), problem(503, "limit")]
        for first in sure:
            world = World()
            world.run(lambda host: first if host == "a" else OK, repeatable=False)
            self.assertEqual(world.hosts(), "ab")

    def test_a_refusal_after_an_unsure_try_says_that_the_request_may_be_done(self) -> None:
        world = World()
        with self.assertRaises(ChronosError) as caught:
            world.run(lambda host: NoAnswer("broke") if host == "a" else problem(412, "conflict"))
        self.assertTrue(caught.exception.unconfirmed)
        self.assertIn("read the timer", str(caught.exception))

    def test_an_error_has_status_reason_and_advice(self) -> None:
        world = World()
        with self.assertRaises(ChronosError) as caught:
            world.run(lambda host: Reply(400, {"reason": "body: empty"}, b"ignored"))
        error = caught.exception
        self.assertEqual((error.status, error.reason), (400, "body: empty"))
        self.assertEqual(error.node, "http://a:1")
        self.assertIn("400 from http://a:1: body: empty", str(error))

    def test_urls_of_nodes_are_checked(self) -> None:
        wrong: List[List[str]] = [[], ["10.0.0.1:7253"], ["http://a/x"], ["http://u:p@a"]]
        for urls in [*wrong, ["ftp://a"]]:
            with self.assertRaises(ValueError):
                Nodes(urls, Retry(), lambda: 0.0)
        nodes = Nodes(["http://a", "https://[::1]"], Retry(), lambda: 0.0)
        self.assertEqual([node.url for node in nodes.all], ["http://a:7253", "https://[::1]:7443"])
