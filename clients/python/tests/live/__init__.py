"""Tests against real nodes, which `tests/clients` of the project starts; variables say where."""

import os
import time
import unittest
from typing import Callable, List

from chronos_client import Pop, Retry

#: Longest wait for what must happen, however slow the machine is.
PATIENCE_S = 60.0
#: For a cluster on a slow machine, and for one request to such a machine.
PATIENT = Retry(attempts=100, deadline_s=120.0, try_s=60.0, connect_s=10.0)
ONCE = Retry(attempts=1, deadline_s=120.0, try_s=60.0, connect_s=60.0)


def variable(name: str) -> str:
    """A variable of the suite; without it the test is left out."""
    value = os.environ.get(name)
    if value is None:
        raise unittest.SkipTest(f"{name} is not set: cargo test --test clients")
    return value


def nodes() -> List[str]:
    """The URLs of the nodes."""
    return variable("CHRONOS_NODES").split(",")


def until(what: str, look: Callable[[], bool]) -> None:
    """Looks until there is what was waited for."""
    end_s = time.monotonic() + PATIENCE_S
    while not look():
        if time.monotonic() > end_s:
            raise AssertionError(f"waited in vain for {what}")
        time.sleep(0.01)


class Pops:
    """A handler that keeps what came."""

    def __init__(self) -> None:
        self.all: List[Pop] = []

    def __call__(self, pop: Pop) -> None:
        self.all.append(pop)

    def bodies(self) -> List[str]:
        return sorted(pop.body.decode() for pop in self.all)
