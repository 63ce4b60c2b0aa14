"""All requests against one real node that signs, and both receivers."""

import asyncio
import threading
import unittest
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import List

from chronos_client import (
    After,
    At,
    AsyncClient,
    AsyncReceiver,
    Callback,
    ChronosError,
    Client,
    Cron,
    Every,
    Gone,
    Later,
    Name,
    Pop,
    Receiver,
    RetryPolicy,
    Tag,
    Timer,
    Timing,
)

from . import ONCE, PATIENCE_S, PATIENT, Pops, nodes, until, variable

NOWHERE = "http://127.0.0.1:9/never"
FAR = Timer(After(3600), Callback(NOWHERE, "x"), (Tag("FAR"),))


class Node(unittest.TestCase):
    def setUp(self) -> None:
        self.client = Client(nodes(), token=variable("CHRONOS_TOKEN"), retry=PATIENT)
        self.secret = variable("CHRONOS_SECRET")

    def tearDown(self) -> None:
        self.client.close()

    def status_of(self, *words: object) -> int:
        method, *arguments = words
        with self.assertRaises(ChronosError) as caught:
            getattr(self.client, str(method))(*arguments)
        return caught.exception.status or 0

    def test_a_timer_is_created_read_replaced_and_deleted(self) -> None:
        written = self.client.create(FAR)
        state = self.client.get(written.id)
        self.assertEqual(state.timer, replace(FAR, replicas=2))
        self.client.update(written.id, replace(FAR, timing=Every(5, 3600)))
        self.assertEqual(self.client.get(written.id).timer.timing, Every(5, 3600))
        self.client.delete(written.id)
        self.client.delete(written.id)
        self.assertEqual(self.status_of("get", written.id), 404)
        self.assertEqual(self.status_of("get", "nonsense"), 404)

    def test_all_of_a_definition_is_kept(self) -> None:
        callback = Callback(
            NOWHERE,
            b"\x00\xff",
            method="PUT",
            content_type="image/png",
            headers={"X-Tenant": "blue"},
            retry=RetryPolicy(3, 3600, 1, 1.5, 60, 0.1),
            timeout=15,
            dead_letter_uri=NOWHERE,
            on_success=NOWHERE,
            on_failure=NOWHERE,
        )
        year = datetime.now(timezone.utc).year + 1
        at = datetime(year, 12, 1, 9, 0, 0, 250_000, tzinfo=timezone.utc)
        cron = Cron("0 9 * * MON-FRI", "Europe/London", 60, at)
        timings: List[Timing] = [At(at, window=60), cron]
        for timing in timings:
            timer = Timer(timing, callback, (Tag("KEPT", 3),), 1)
            written = self.client.create(timer)
            state = self.client.get(written.id)
            self.assertEqual(state.timer, timer)
            self.client.update(written.id, state.timer)
            self.client.delete(written.id)
        written = self.client.create(Timer(After(timedelta(minutes=15)), Callback(NOWHERE)))
        self.assertEqual(self.client.get(written.id).timer.timing, After(900))

    def test_a_key_makes_one_timer_and_knows_its_body(self) -> None:
        first = self.client.create(FAR, key="order 17")
        self.assertEqual(self.client.create(FAR, key="order 17").id, first.id)
        other = replace(FAR, timing=After(60))
        with self.assertRaises(ChronosError) as caught:
            self.client.create(other, key="order 17")
        self.assertEqual((caught.exception.status, caught.exception.kind), (422, "conflict"))
        plain = self.client.create(FAR, has_key=False)
        self.assertNotEqual(plain.id, first.id)

    def test_a_name_is_written_on_conditions(self) -> None:
        name = "n\u00e4me/1"
        self.assertEqual(self.status_of("update", Name(name), FAR), 412)
        first = self.client.create_or_replace(name, FAR, only_create=True)
        with self.assertRaises(ChronosError) as caught:
            self.client.create_or_replace(name, FAR, only_create=True)
        self.assertEqual(caught.exception.status, 412)
        second = self.client.create_or_replace(name, FAR)
        self.assertEqual(first.id.split("-")[0], second.id.split("-")[0])
        with self.assertRaises(ChronosError):
            self.client.update(Name(name), FAR, if_match=first.etag)
        self.client.update(Name(name), FAR, if_match=second.etag)
        state = self.client.get(Name(name))
        self.assertEqual((state.name, state.id), (name, None))
        self.client.delete(Name(name), if_match=state.etag)
        self.assertEqual(self.status_of("get", Name(name)), 404)

    def test_a_refusal_says_what_was_expected(self) -> None:
        with self.assertRaises(ChronosError) as caught:
            self.client.create(Timer(After(-1), Callback(NOWHERE)))
        error = caught.exception
        self.assertEqual((error.status, error.kind), (400, "document"))
        self.assertEqual(error.member, "timing.interval")
        self.assertIn("got -1", error.reason)
        self.assertEqual(error.advice, "send another timer")
        with Client(nodes(), token="chr_of_nobody", retry=ONCE) as stranger:
            with self.assertRaises(ChronosError) as caught:
                stranger.create(FAR)
        self.assertEqual((caught.exception.status, caught.exception.attempts), (401, 1))

    def test_a_client_that_is_too_fast_waits_as_the_node_asks(self) -> None:
        token, timer = variable("CHRONOS_SLOW_TOKEN"), replace(FAR, tags=(Tag("SLOW"),))
        made = 0
        with Client(nodes(), token=token, retry=ONCE) as hasty:
            with self.assertRaises(ChronosError) as caught:
                while made < 10_000:
                    hasty.create(timer)
                    made += 1
        self.assertEqual((caught.exception.status, caught.exception.kind), (429, "quota"))
        with Client(nodes(), token=token, retry=PATIENT) as patient:
            for _ in range(25):
                patient.create(timer)
        self.assertEqual(len(list(self.client.list(tag="SLOW"))), made + 25)

    def test_pause_resume_and_run_now(self) -> None:
        pops = Pops()
        with Receiver(pops, [self.secret]).serve("127.0.0.1", 0) as server:
            uri = f"http://127.0.0.1:{server.port}/pop"
            written = self.client.create(Timer(Every(1800, 3600), Callback(uri, "run")))
            paused = self.client.pause(written.id)
            self.assertTrue(self.client.get(written.id).paused)
            self.assertEqual(self.status_of("run_now", written.id), 409)
            with self.assertRaises(ChronosError):
                self.client.resume(written.id, if_match='"0000000000000001"')
            resumed = self.client.resume(written.id, if_match=paused.etag)
            self.assertFalse(self.client.get(written.id).paused)
            self.client.run_now(written.id, if_match=resumed.etag)
            until("the pop", lambda: pops.bodies() == ["run"])
            self.client.delete(written.id)

    def test_lists_and_counts(self) -> None:
        for place in range(7):
            tagged = replace(FAR, tags=(Tag("LISTED"),))
            self.client.create_or_replace(f"listed-{place}", tagged)
        listing = self.client.list(tag="LISTED", due_before="PT2H", page_size=3)
        found = list(listing)
        names = sorted(state.name or "" for state in found)
        self.assertEqual(names, [f"listed-{place}" for place in range(7)])
        self.assertEqual(listing.incomplete, [])
        self.assertTrue(all(state.state == "armed" and state.due_at for state in found))
        self.assertEqual(len(list(self.client.list(name_prefix="listed-1"))), 1)
        self.assertEqual(len(list(self.client.list(tag="LISTED", due_after=7200))), 0)
        counts = self.client.count()
        self.assertEqual(counts.by_tag["LISTED"], 7)
        self.assertIsNotNone(counts.due)
        self.assertIsNone(self.client.count(histogram=False).due)

    def test_dead_letters_are_listed_replayed_and_deleted(self) -> None:
        pops, refuses = Pops(), threading.Event()
        refuses.set()

        def handle(pop: Pop) -> None:
            if refuses.is_set():
                raise Later()
            pops(pop)

        with Receiver(handle, [self.secret]).serve("127.0.0.1", 0) as server:
            host = f"127.0.0.1:{server.port}"
            callback = Callback(
                f"http://{host}/pop", "letter", retry=RetryPolicy(max_attempts=1)
            )
            written = []
            for tag in ["ONE", "ALL", "ALL", "DEL", "DELS"]:
                written.append(self.client.create(Timer(After(0), callback, (Tag(tag),))))
            mine = self.client.dead_letters(host=host, page_size=2)
            until("the letters", lambda: len(list(mine)) == 5)
            one = next(iter(self.client.dead_letters(tag="ONE")))
            self.assertEqual((one.reason, one.status, one.sequence_number), ("attempts", 503, 1))
            self.assertEqual(self.client.dead_letter(one.id).answer, b"try again later")
            refuses.clear()
            self.client.replay(one.id)
            until("the replay", lambda: [pop.replay for pop in pops.all] == [1])
            self.assertEqual(self.client.replay_dead_letters(tag="ALL").done, 2)
            until("the replays", lambda: pops.bodies() == ["letter"] * 3)
            self.client.delete_dead_letter(next(iter(self.client.dead_letters(tag="DEL"))).id)
            self.assertEqual(self.client.delete_dead_letters(tag="DELS").done, 1)
            self.assertEqual(list(mine), [])
            self.assertEqual(self.status_of("replay", one.id), 404)

    def test_pops_reach_the_handler_once_and_signed(self) -> None:
        attempts: List[Pop] = []

        def handle(pop: Pop) -> None:
            attempts.append(pop)
            if len(attempts) == 1:
                raise Later()

        with Receiver(handle, [self.secret]).serve("127.0.0.1", 0) as server:
            uri = f"http://127.0.0.1:{server.port}/a?b=c"
            written = self.client.create(Timer(After(0.05), Callback(uri, "caf\u00e9")))
            until("the second attempt", lambda: len(attempts) == 2)
        first, second = attempts
        self.assertEqual(first.webhook_id, second.webhook_id)
        self.assertEqual((second.path, second.body), ("/a?b=c", "caf\u00e9".encode()))
        self.assertEqual((second.timer_id or "")[:16], written.id[:16])
        # What nodes tell that send these headers.
        self.assertIn((first.attempt, second.attempt), [(1, 2), (None, None)])
        self.assertEqual(first.due is None, second.due is None)
        if first.due is not None and second.due is not None:
            self.assertLess(abs(first.due - second.due), timedelta(seconds=1))

    def test_without_signatures_repeats_are_known_where_nodes_tell_the_due_time(self) -> None:
        pops, inner = Pops(), Pops()
        receiver = Receiver(inner, unsigned=True)

        def handle(pop: Pop) -> None:
            for _ in range(3):
                receiver.receive(pop.method, pop.path, pop.headers.items(), pop.body)
            pops(pop)

        with Receiver(handle, unsigned=True).serve("127.0.0.1", 0) as server:
            callback = Callback(f"http://127.0.0.1:{server.port}/", "unsigned")
            self.client.create(Timer(After(0), callback))
            until("the pop", lambda: len(pops.all) == 1)
        headers = pops.all[0].headers
        is_told = "x-timer-id" in headers and "x-due-time" in headers
        self.assertEqual(len(inner.all), 1 if is_told else 3)

    def test_a_receiver_of_another_secret_takes_nothing(self) -> None:
        pops, other = Pops(), "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
        receiver = Receiver(pops, [other])
        with receiver.serve("127.0.0.1", 0) as server:
            retry = RetryPolicy(max_attempts=1)
            callback = Callback(f"http://127.0.0.1:{server.port}/", "refused", retry=retry)
            written = self.client.create(Timer(After(0), callback, (Tag("REFUSED"),)))
            until("a letter", lambda: any(self.client.dead_letters(tag="REFUSED")))
            letter = next(iter(self.client.dead_letters(tag="REFUSED")))
            self.assertEqual(letter.status, 401)
            self.assertEqual(pops.all, [])
            receiver.set_secrets([other, self.secret])
            self.client.replay(written.id)
            until("the replay", lambda: pops.bodies() == ["refused"])

    def test_gone_ends_the_timer(self) -> None:
        def handle(pop: Pop) -> None:
            raise Gone()

        with Receiver(handle, [self.secret]).serve("127.0.0.1", 0) as server:
            callback = Callback(f"http://127.0.0.1:{server.port}/", retry=RetryPolicy())
            written = self.client.create(Timer(Every(0.05, 3600), callback))

            def is_over() -> bool:
                try:
                    self.client.get(written.id)
                except ChronosError as error:
                    return error.status == 404
                return False

            until("the end", is_over)

    def test_the_same_with_asyncio(self) -> None:
        came: List[Pop] = []

        async def story() -> None:
            has_come = asyncio.Event()

            async def handle(pop: Pop) -> None:
                came.append(pop)
                has_come.set()

            receiver = AsyncReceiver(handle, [self.secret])
            async with await receiver.serve("127.0.0.1", 0) as server:
                token = variable("CHRONOS_TOKEN")
                async with AsyncClient(nodes(), token=token, retry=PATIENT) as client:
                    uri = f"http://127.0.0.1:{server.port}/pop"
                    timer = Timer(After(0.05), Callback(uri, "loop"))
                    many = await asyncio.gather(*(client.create(timer) for _ in range(20)))
                    self.assertEqual(len({written.id for written in many}), 20)
                    await asyncio.wait_for(has_come.wait(), PATIENCE_S)
                    far = replace(FAR, tags=(Tag("LOOP"),))
                    await client.create_or_replace("loop", far)
                    self.assertEqual((await client.get(Name("loop"))).name, "loop")
                    names = [state.name async for state in client.list(tag="LOOP", page_size=1)]
                    self.assertEqual(names, ["loop"])
                    await client.delete(Name("loop"))
                    with self.assertRaises(ChronosError):
                        await client.get(Name("loop"))

        asyncio.run(story())
        self.assertEqual(came[0].body, b"loop")
