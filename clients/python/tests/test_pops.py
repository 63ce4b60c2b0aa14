"""Signatures, repeats, and what the node is answered."""

import time
import unittest
from typing import Callable, Dict, List, Optional, Tuple

from chronos_client import Answer, Gone, Later, Pop, Receiver
from chronos_client.signatures import key_of, sign

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
OTHER = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
NOW_S = 1_674_087_231
ID = "0004d9f548100001-066cc1e2a0401402-3"


def signed(body: bytes, *secrets: str, id: str = ID, at_s: int = NOW_S) -> Dict[str, str]:
    words = [sign(key_of(secret), id, str(at_s), body) for secret in secrets]
    return {
        "X-Sequence-Number": "3",
        "webhook-id": id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": " ".join(words),
    }


class Receivers(unittest.TestCase):
    def setUp(self) -> None:
        self.pops: List[Pop] = []
        self.error: Optional[Exception] = None

    def handle(self, pop: Pop) -> None:
        self.pops.append(pop)
        if self.error is not None:
            raise self.error

    def receiver(self, *secrets: str, pops_max: int = 100, keep_s: float = 3600.0) -> Receiver:
        return Receiver(
            self.handle,
            secrets,
            unsigned=not secrets,
            pops_max=pops_max,
            keep_s=keep_s,
            clock=lambda: float(NOW_S),
        )

    def send(self, receiver: Receiver, headers: Dict[str, str], body: bytes = b"hello") -> Answer:
        return receiver.receive("POST", "/pop", list(headers.items()), body)

    def test_the_vector_of_the_specification(self) -> None:
        body = b'{"test": 2432232314}'
        id, at = "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330"
        expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        self.assertEqual(sign(key_of(SECRET), id, at, body), expected)

    def test_what_is_signed_is_taken_and_nothing_else(self) -> None:
        receiver = self.receiver(SECRET)
        good = signed(b"hello", SECRET)
        changes: List[Tuple[Dict[str, str], bytes]] = [
            (good, b"hello "),
            (signed(b"hello", OTHER), b"hello"),
            ({**good, "webhook-id": ID[:-1] + "4"}, b"hello"),
            ({**good, "webhook-timestamp": str(NOW_S + 1)}, b"hello"),
            ({**good, "webhook-timestamp": "soon"}, b"hello"),
            ({**good, "webhook-signature": "v1,"}, b"hello"),
            ({**good, "webhook-signature": "\u00e9"}, b"hello"),
            ({"X-Sequence-Number": "3"}, b"hello"),
        ]
        for headers, body in changes:
            self.assertEqual(self.send(receiver, headers, body).status, 401, headers)
        twice = [*good.items(), ("Webhook-Id", ID)]
        self.assertEqual(receiver.receive("POST", "/pop", twice, b"hello").status, 401)
        self.assertEqual(self.pops, [])
        self.assertEqual(self.send(receiver, good).status, 200)
        self.assertEqual((self.pops[0].timer_id, self.pops[0].sequence), ("0004d9f548100001", 3))

    def test_an_id_with_a_dot_does_not_move_the_bounds_of_what_is_signed(self) -> None:
        body = str(NOW_S).encode() + b".rest"
        good = signed(body, SECRET)
        moved = {**good, "webhook-id": f"{ID}.{NOW_S}", "webhook-timestamp": str(NOW_S)}
        self.assertEqual(self.send(self.receiver(SECRET), moved, b"rest").status, 401)

    def test_clocks_may_differ_by_five_minutes(self) -> None:
        receiver = self.receiver(SECRET)
        cases = [(-300, 200), (300, 200), (-301, 401), (301, 401)]
        for place, (shift_s, status) in enumerate(cases):
            headers = signed(b"hello", SECRET, id=f"a-b-{place}", at_s=NOW_S + shift_s)
            self.assertEqual(self.send(receiver, headers).status, status, shift_s)

    def test_the_old_secret_counts_until_it_is_taken_out(self) -> None:
        receiver = self.receiver(SECRET, OLD)
        for place, secrets in enumerate([(OLD,), (SECRET,), (SECRET, OLD), (OTHER, OLD)]):
            headers = signed(b"hello", *secrets, id=f"a-b-{place}")
            self.assertEqual(self.send(receiver, headers).status, 200, secrets)
        receiver.set_secrets([SECRET])
        self.assertEqual(self.send(receiver, signed(b"hello", OLD, id="a-b-9")).status, 401)

    def test_secrets_are_checked(self) -> None:
        for secrets in [["whsec_"], ["whsec_AAAA"], [SECRET[6:]], ["whsec_%%%"]]:
            with self.assertRaises(ValueError):
                Receiver(self.handle, secrets)
        with self.assertRaises(ValueError):
            Receiver(self.handle)
        with self.assertRaises(ValueError):
            Receiver(self.handle, SECRET)

    def test_a_repeat_is_answered_and_dropped(self) -> None:
        receiver = self.receiver(SECRET)
        for _ in range(3):
            self.assertEqual(self.send(receiver, signed(b"hello", SECRET)).status, 200)
        self.assertEqual(len(self.pops), 1)
        self.send(receiver, signed(b"hello", SECRET, id=ID.replace("1402", "1403")))
        self.assertEqual(len(self.pops), 2, "a timer that was replaced begins anew")

    def test_what_failed_is_handled_again(self) -> None:
        receiver = self.receiver(SECRET)
        failures: List[Tuple[Exception, Optional[int]]] = [(Later(7), 7), (Later(), None)]
        for error, retry_after_s in failures:
            self.error = error
            answer = self.send(receiver, signed(b"hello", SECRET))
            self.assertEqual((answer.status, answer.retry_after_s), (503, retry_after_s))
        self.error = RuntimeError("a mistake")
        with self.assertLogs("chronos_client", "ERROR"):
            self.assertEqual(self.send(receiver, signed(b"hello", SECRET)).status, 503)
        self.error = None
        self.assertEqual(self.send(receiver, signed(b"hello", SECRET)).status, 200)
        self.assertEqual(len(self.pops), 4)

    def test_gone_is_answered_410_to_repeats_as_well(self) -> None:
        receiver = self.receiver(SECRET)
        self.error = Gone()
        for _ in range(2):
            self.assertEqual(self.send(receiver, signed(b"hello", SECRET)).status, 410)
        self.assertEqual(len(self.pops), 1)

    def test_a_repeat_while_the_pop_is_handled_is_put_off(self) -> None:
        answers: List[Answer] = []

        def handle(pop: Pop) -> None:
            answers.append(self.send(receiver, signed(b"hello", SECRET)))

        receiver = Receiver(handle, [SECRET], clock=lambda: float(NOW_S))
        self.assertEqual(self.send(receiver, signed(b"hello", SECRET)).status, 200)
        self.assertEqual((answers[0].status, answers[0].retry_after_s), (503, 1))

    def test_memory_is_bounded_and_the_oldest_leaves_first(self) -> None:
        receiver = self.receiver(SECRET, pops_max=3)
        for place in range(5):
            self.send(receiver, signed(b"hello", SECRET, id=f"a-b-{place}"))
        self.send(receiver, signed(b"hello", SECRET, id="a-b-4"))
        self.assertEqual(len(self.pops), 5, "the newest is known")
        self.send(receiver, signed(b"hello", SECRET, id="a-b-0"))
        self.assertEqual(len(self.pops), 6, "the oldest is not")
        receiver = self.receiver(SECRET, keep_s=1e-9)
        for _ in range(2):
            self.send(receiver, signed(b"hello", SECRET))
            time.sleep(1e-6)
        self.assertEqual(len(self.pops), 8, "nothing is kept for longer than was said")

    def test_a_header_does_not_contradict_what_is_signed(self) -> None:
        receiver = self.receiver(SECRET)
        word = "0004D9F548100001-2-0000801000840080"
        cases = [(word, word), ("ffff" + word[4:], "0004d9f548100001")]
        for place, (told, timer_id) in enumerate(cases):
            id = f"0004d9f548100001-066cc1e2a0401402-{place}"
            headers = {**signed(b"hello", SECRET, id=id), "X-Timer-Id": told}
            self.send(receiver, headers)
            self.assertEqual(self.pops[-1].timer_id, timer_id)

    def test_without_signatures_the_due_time_tells_repeats(self) -> None:
        receiver = self.receiver()
        base = {"X-Sequence-Number": "1", "X-Timer-Id": "0004d9f548100001-2-00"}
        due = {**base, "X-Due-Time": "2026-12-01T09:00:00.250Z", "X-Attempt": "2"}
        later = {**base, "X-Due-Time": "2026-12-01T09:00:05.250Z"}
        close = {**base, "X-Due-Time": "2026-12-01T09:00:05.253Z"}
        counts = [(due, 1), (due, 1), (later, 2), (close, 2), (base, 3), (base, 4)]
        for headers, count in counts:
            self.assertEqual(self.send(receiver, headers).status, 200)
            self.assertEqual(len(self.pops), count, headers)
        self.assertEqual(self.pops[0].attempt, 2)
        self.assertEqual(self.send(receiver, {"X-Sequence-Number": "x"}).status, 400)
