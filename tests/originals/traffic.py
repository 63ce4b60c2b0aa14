"""Clients, the server that callbacks go to, and the judgement of what came there."""

import asyncio
import json
import socket
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from urllib.parse import unquote

from cluster import PORT

# A pop may be under way when a change is answered.
UNDER_WAY_S = 0.25


class Sink:
    """Answers 200 to every POST and keeps when it came, to which path, with which number, and from
    which of the nodes."""

    def __init__(self, address):
        self.address, self.pops, self.lock = address, [], threading.Lock()
        self.nodes = []
        self.loop = asyncio.new_event_loop()
        ready = threading.Event()
        threading.Thread(target=self.run, args=(ready,), daemon=True).start()
        ready.wait()

    def run(self, ready):
        asyncio.set_event_loop(self.loop)
        serving = asyncio.start_server(self.serve, self.address, 0, limit=1 << 16, backlog=1024)
        server = self.loop.run_until_complete(serving)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        self.loop.run_forever()

    def uri(self, path):
        return f"http://{self.address}:{self.port}{path}"

    def name_of(self, address):
        """Who connects from there. An original binds its own address, ours leaves it to the kernel."""
        for place, node in enumerate(self.nodes):
            if node.address == address:
                return f"{node.kind}{place}"
        return "R"

    async def serve(self, reader, writer):
        name = None
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
                came = time.monotonic()
                name = name or self.name_of(writer.get_extra_info("peername")[0])
                path = head[0].split(b" ")[1].decode("latin-1")
                lines = [line.partition(b":")[::2] for line in head[1:]]
                headers = {name.strip().lower(): value.strip() for name, value in lines}
                if headers.get(b"expect", b"").lower() == b"100-continue":
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                is_chunked = headers.get(b"transfer-encoding", b"").lower() == b"chunked"
                length = await read_chunks(reader) if is_chunked else 0
                length += int(headers.get(b"content-length", b"0"))
                if not is_chunked:
                    await reader.readexactly(length)
                number = int(headers.get(b"x-sequence-number", b"0"))
                with self.lock:
                    self.pops.append((came, unquote(path), number, name))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError, OSError, ValueError):
            pass
        finally:
            writer.close()

    def by_path(self):
        found = defaultdict(list)
        with self.lock:
            for came, path, number, name in self.pops:
                found[path].append((came, number, name))
        return found


async def read_chunks(reader):
    """An original sends empty opaque data so."""
    total = 0
    while True:
        length = int(await reader.readline(), 16)
        await reader.readexactly(length + 2)
        total += length
        if length == 0:
            return total


class Client:
    """One connection to a node, made anew when it breaks."""

    def __init__(self, node):
        self.node, self.stream = node, None

    def ask(self, method, path, body=b""):
        """Status and Location; `(0, "")` where no answer came."""
        for attempt in range(2):
            is_old = self.stream is not None
            try:
                return self.ask_once(method, path, body)
            except (OSError, ValueError, IndexError):
                self.close()
                # One that the node closed while it was idle, or as it died.
                if not is_old or attempt:
                    return 0, ""
        return 0, ""

    def ask_once(self, method, path, body):
        if self.stream is None:
            self.stream = socket.create_connection((self.node.address, PORT), timeout=10)
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.node.name}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.stream.sendall(head.encode() + body)
        received = b""
        while b"\r\n\r\n" not in received:
            more = self.stream.recv(65536)
            if not more:
                raise OSError("closed")
            received += more
        head, _, rest = received.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        fields = [line.partition(":")[::2] for line in lines[1:]]
        headers = {name.strip().lower(): value.strip() for name, value in fields}
        length = int(headers.get("content-length", "0"))
        while len(rest) < length:
            rest += self.stream.recv(65536)
        return int(lines[0].split(" ")[1]), headers.get("location", "")

    def close(self):
        if self.stream is not None:
            self.stream.close()
        self.stream = None


def document(uri, interval_s, pops, opaque="opaque", factor=2, tags=()):
    """A timer as clients write it."""
    timer = {
        "timing": {"interval": interval_s, "repeat-for": interval_s * pops},
        "callback": {"http": {"uri": uri, "opaque": opaque}},
        "reliability": {"replication-factor": factor},
    }
    if tags:
        timer["statistics"] = {"tag-info": [{"type": tag, "count": 1} for tag in tags]}
    return json.dumps(timer, ensure_ascii=False).encode("utf-8", "surrogateescape")


@dataclass
class Timer:
    """A definition that a node answered with 200, and until when it is to pop."""

    path: str
    location: str
    interval_s: float
    pops: int
    asked: float
    answered: float
    # When its end or replacement was asked for and answered.
    changed: tuple = ()


@dataclass
class Tally:
    """What a story counts."""

    timers: int = 0
    required: int = 0
    lost: int = 0
    doubled: int = 0
    after: int = 0
    early: int = 0
    late: int = 0
    refused: int = 0
    notes: list = field(default_factory=list)

    NAMES = ("timers", "required", "lost", "doubled", "after", "early", "late", "refused")

    def add(self, other):
        for name in self.NAMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.notes += other.notes

    def row(self):
        return " ".join(f"{getattr(self, name):>8}" for name in self.NAMES)


class Load:
    """Timers of one story, written through the nodes named."""

    def __init__(self, sink, label):
        self.sink, self.label, self.timers, self.refused = sink, label, [], 0
        self.lock, self.number = threading.Lock(), 0

    def path(self):
        with self.lock:
            self.number += 1
            return f"/{self.label}/{self.number}"

    def create(self, client, interval_s, pops, **more):
        path = self.path()
        body = document(self.sink.uri(path), interval_s, pops, **more)
        return self.note(client, "POST", "/timers", path, interval_s, pops, body)

    def note(self, client, method, target, path, interval_s, pops, body):
        asked = time.monotonic()
        status, location = client.ask(method, target, body)
        answered = time.monotonic()
        if status != 200:
            with self.lock:
                self.refused += 1
            return None
        timer = Timer(path, location or target, interval_s, pops, asked, answered)
        with self.lock:
            self.timers.append(timer)
        return timer

    def delete(self, client, timer):
        asked = time.monotonic()
        status, _ = client.ask("DELETE", timer.location)
        timer.changed = (asked, time.monotonic() if status == 200 else float("inf"))
        self.refused += status != 200

    def replace(self, client, timer, interval_s, pops):
        path = self.path()
        body = document(self.sink.uri(path), interval_s, pops)
        asked = time.monotonic()
        new = self.note(client, "PUT", timer.location, path, interval_s, pops, body)
        timer.changed = (asked, new.answered if new else float("inf"))
        return new

    def run(self, nodes, per_s, until, interval_s, pops):
        """Creates timers through these nodes in turn, from threads of their own."""

        def create(node):
            client, next_at = Client(node), time.monotonic()
            while time.monotonic() < until:
                self.create(client, interval_s, pops)
                next_at += len(nodes) / per_s
                time.sleep(max(0.0, next_at - time.monotonic()))

        threads = [threading.Thread(target=create, args=(node,)) for node in nodes]
        for thread in threads:
            thread.start()
        return threads

    def last_due(self):
        return max((one.answered + one.interval_s * one.pops for one in self.timers), default=0)

    def await_end(self, late_s=7):
        time.sleep(max(0.0, self.last_due() + late_s - time.monotonic()))

    def judge(self, late_s=4.5, is_told=True):
        """Counts. Late is what no rank of two would be."""
        tally, found = Tally(refused=self.refused), self.sink.by_path()
        for timer in self.timers:
            judge_timer(tally, timer, found.get(timer.path, []), late_s, is_told)
        tally.timers = len(self.timers)
        return tally


def judge_timer(tally, timer, pops, late_s, is_told):
    # Which pops must come: those that come due before a change was asked for.
    asked, answered = timer.changed or (float("inf"), float("inf"))
    wrong = []
    for number in range(1, timer.pops + 1):
        came = [pop for pop in pops if pop[1] == number]
        due = (timer.asked + number * timer.interval_s, timer.answered + number * timer.interval_s)
        if due[1] + 0.1 < asked:
            tally.required += 1
            # One that its rank has not done when a change comes is not owed any more.
            is_owed = due[1] + late_s < asked
            if not came and is_owed:
                tally.lost += 1
                wrong.append(f"pop {number} lost")
        if len(came) > 1:
            tally.doubled += len(came) - 1
            apart = ", ".join(f"{one[0] - due[0]:.3f} s by {one[2]}" for one in came)
            wrong.append(f"pop {number} came {len(came)} times: {apart}")
        for one in came:
            tally.early += one[0] < due[0] - 0.002
            tally.late += one[0] > due[1] + late_s
            if one[0] > answered + UNDER_WAY_S:
                tally.after += 1
                wrong.append(f"pop {number} came {one[0] - answered:.3f} s after the change by {one[2]}")
    more = [pop for pop in pops if pop[1] > timer.pops]
    tally.doubled += len(more)
    if more:
        wrong.append(f"{len(more)} pops beyond the last")
    if wrong and is_told:
        tally.notes.append(f"{timer.path} {timer.location}: {'; '.join(wrong)}")
