"""Client and callback receiver of the timer service Chronos. The standard library is enough."""

from .aio import AsyncClient, AsyncListing
from .aio_receiver import AsyncReceiver, AsyncReceiverServer
from .client import Client, Listing
from .errors import ChronosError
from .exchange import Retry
from .operations import Page
from .pops import Answer, Gone, Later, Pop
from .receiver import Receiver, ReceiverServer
from .timers import (
    After,
    At,
    Callback,
    Counts,
    Cron,
    DeadLetter,
    Duration,
    Every,
    Name,
    Ref,
    RetryPolicy,
    Tag,
    Timer,
    TimerState,
    Timing,
    Used,
    Written,
)

__all__ = [
    "After",
    "Answer",
    "AsyncClient",
    "AsyncListing",
    "AsyncReceiver",
    "AsyncReceiverServer",
    "At",
    "Callback",
    "ChronosError",
    "Client",
    "Counts",
    "Cron",
    "DeadLetter",
    "Duration",
    "Every",
    "Gone",
    "Later",
    "Listing",
    "Name",
    "Page",
    "Pop",
    "Receiver",
    "ReceiverServer",
    "Ref",
    "Retry",
    "RetryPolicy",
    "Tag",
    "Timer",
    "TimerState",
    "Timing",
    "Used",
    "Written",
]
