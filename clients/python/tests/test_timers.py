"""Documents: what is sent, and what is read again."""

import json
import unittest
from datetime import datetime, timedelta, timezone
from typing import List

from chronos_client import After, At, Callback, Cron, Every, RetryPolicy, Tag, Timer, Timing
from chronos_client.documents import read_timer
from chronos_client.timers import read_moment

URI = "http://10.0.0.1:10888/call/17"


class Documents(unittest.TestCase):
    def test_a_plain_timer_has_what_the_original_knows_and_nothing_else(self) -> None:
        timer = Timer(Every(300, 600), Callback(URI, "any text"), (Tag("CALL"),), replicas=2)
        self.assertEqual(
            timer.document(),
            {
                "timing": {"interval": 300, "repeat-for": 600},
                "callback": {"http": {"uri": URI, "opaque": "any text"}},
                "reliability": {"replication-factor": 2},
                "statistics": {"tag-info": [{"type": "CALL", "count": 1}]},
            },
        )

    def test_what_is_written_is_read_again(self) -> None:
        retry = RetryPolicy(8, 86400, 1, 2, 3600, 0.2)
        callback = Callback(
            URI,
            b"\x00\xff",
            method="PUT",
            content_type="image/png",
            headers={"X-Tenant": "blue"},
            retry=retry,
            timeout=15,
            dead_letter_uri="https://letters.example/dead",
            on_success="https://reports.example/done",
            on_failure="https://reports.example/failed",
        )
        end = datetime(2030, 12, 31, 23, 59, 59, tzinfo=timezone.utc)
        at = datetime(2026, 12, 1, 9, 0, 0, 250_000, tzinfo=timezone.utc)
        timings: List[Timing] = [
            After(1.5, window=300),
            Every(5, 20),
            At(at),
            Cron("0 0 9 * * MON-FRI", "Europe/London", 60, end),
        ]
        for timing in timings:
            timer = Timer(timing, callback, (Tag("CALL", 3), Tag("REG")), 3)
            document = json.loads(json.dumps(timer.document()))
            self.assertEqual(read_timer(document), timer)

    def test_a_timedelta_is_never_shortened(self) -> None:
        cases = [
            (timedelta(seconds=90), 90),
            (timedelta(milliseconds=1500), 1.5),
            (timedelta(microseconds=1), 0.001),
            (timedelta(days=36600), 3162240000),
        ]
        for delay, seconds in cases:
            self.assertEqual(After(delay).document(), {"interval": seconds})
        self.assertEqual(After("PT15M").document(), {"interval": "PT15M"})

    def test_moments_need_a_zone_and_are_read_to_the_microsecond(self) -> None:
        with self.assertRaises(ValueError):
            At(datetime(2026, 12, 1)).document()
        zone = timezone(timedelta(hours=2))
        at = At(datetime(2026, 12, 1, 9, tzinfo=zone))
        self.assertEqual(at.document(), {"at": "2026-12-01T07:00:00Z"})
        expected = datetime(2026, 12, 1, 9, 0, 0, 250_000, tzinfo=timezone.utc)
        for text in ["2026-12-01T09:00:00.25Z", "2026-12-01T11:00:00.250000999+02:00"]:
            self.assertEqual(read_moment(text), expected)
        with self.assertRaises(ValueError):
            read_moment("tomorrow")
