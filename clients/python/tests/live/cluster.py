"""A cluster of three real nodes, of which one is killed while timers are created."""

import os
import signal
import threading
import unittest
from typing import List

from chronos_client import After, Callback, Client, Pop, Receiver, Tag, Timer

from . import PATIENT, Pops, nodes, until, variable

THREADS = 4
TIMERS = 400


class Cluster(unittest.TestCase):
    def test_creates_go_on_when_a_node_is_killed_and_no_timer_is_made_twice(self) -> None:
        victim = int(variable("CHRONOS_VICTIM_PID"))
        token = variable("CHRONOS_TOKEN")
        ids: List[str] = []
        failures: List[BaseException] = []

        def create(first: int) -> None:
            with Client(nodes(), token=token, retry=PATIENT) as client:
                # Each thread begins at another node, so that some create at the victim.
                client._operations.nodes._preferred = first % 3
                for place in range(first, TIMERS, THREADS):
                    callback = Callback("http://127.0.0.1:9/never", str(place))
                    try:
                        written = client.create(Timer(After(3600), callback, (Tag("MADE"),)))
                    except BaseException as error:
                        failures.append(error)
                        return
                    ids.append(written.id.split("-")[0])

        threads = [threading.Thread(target=create, args=(first,)) for first in range(THREADS)]
        for thread in threads:
            thread.start()
        until("a quarter of the timers", lambda: len(ids) >= TIMERS // 4 or bool(failures))
        os.kill(victim, signal.SIGKILL)
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertEqual(len(set(ids)), TIMERS)
        with Client(nodes(), token=token, retry=PATIENT) as client:
            listed = list(client.list(tag="MADE"))
            bodies = sorted(int(state.timer.callback.body) for state in listed)
            self.assertEqual(bodies, list(range(TIMERS)), "each timer once")
            self.assertEqual({(state.id or "").split("-")[0] for state in listed}, set(ids))

    def test_a_repeat_of_a_pop_is_dropped_and_a_changed_body_is_refused(self) -> None:
        pops, seen = Pops(), []
        receiver = Receiver(pops, [variable("CHRONOS_SECRET")])

        def handle(pop: Pop) -> None:
            # What the node sends is sent again by somebody who has overheard the callback.
            headers = list(pop.headers.items())
            first = receiver.receive(pop.method, pop.path, headers, pop.body)
            changed = receiver.receive(pop.method, pop.path, headers, pop.body + b"!")
            again = receiver.receive(pop.method, pop.path, headers, pop.body)
            seen.append((first.status, changed.status, again.status))

        outside = Receiver(handle, [variable("CHRONOS_SECRET")])
        with Client(nodes(), token=variable("CHRONOS_TOKEN"), retry=PATIENT) as client:
            with outside.serve("127.0.0.1", 0) as server:
                callback = Callback(f"http://127.0.0.1:{server.port}/pop", "overheard")
                for _ in range(3):
                    client.create(Timer(After(0.05), callback))
                until("three pops", lambda: len(seen) == 3)
        self.assertEqual(seen, [(200, 401, 200)] * 3)
        self.assertEqual(pops.bodies(), ["overheard"] * 3)
        self.assertEqual(len({pop.timer_id for pop in pops.all}), 3)
