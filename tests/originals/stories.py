"""What happens to mixed clusters. Each story makes a cluster, does something to it under timers,
and returns its counts."""

import random
import signal
import time

from cluster import Cluster
from traffic import Client, Load, Sink, Tally, document


class World:
    """Where a story takes place: a folder, addresses `127.0.<block>.x`, kinds of three nodes."""

    def __init__(self, folder, block, kinds, seed):
        self.folder, self.block, self.kinds = folder, block, kinds
        self.random = random.Random(f"{seed} {kinds}")
        self.sink = Sink(f"127.0.{block}.200")

    def cluster(self, kinds=None):
        cluster = Cluster(self.folder, self.block, kinds or self.kinds)
        self.sink.nodes = cluster.nodes
        return cluster


def calm(world):
    """Timers through every node, and nothing else."""
    with world.cluster() as cluster:
        cluster.start()
        load = Load(world.sink, "calm")
        for node in cluster.nodes:
            client = Client(node)
            for number in range(40):
                shape = [(3, 1), (2, 3), (1, 6), (4, 2)][number % 4]
                tags = ("SECOND", "FIRST") if number % 8 == 1 else ()
                load.create(client, *shape, tags=tags)
                time.sleep(0.01)
        load.await_end()
        return load.judge()


def change(world):
    """What one node took is deleted or replaced through another: at once, soon, after a pop."""
    with world.cluster() as cluster:
        cluster.start()
        load = Load(world.sink, "change")
        clients = [Client(node) for node in cluster.nodes]
        waiting = []
        for first in clients:
            for second in clients:
                for number in range(30):
                    timer = load.create(first, 3, 4)
                    if timer is None:
                        continue
                    pause_s = (0.03, 0.3, 1.0, 3.5, 6.97)[number % 5]
                    waiting.append((timer.answered + pause_s, number % 2, second, timer))
                    time.sleep(0.004)
                    waiting = perform_due(load, waiting)
        while waiting:
            waiting = perform_due(load, waiting)
            time.sleep(0.002)
        load.await_end()
        return load.judge()


def perform_due(load, waiting):
    """Does the changes whose time has come; returns the others."""
    now = time.monotonic()
    for due, is_delete, client, timer in waiting:
        if due <= now and is_delete:
            load.delete(client, timer)
        elif due <= now:
            load.replace(client, timer, 4, 3)
    return [one for one in waiting if one[0] > now]


def death(world):
    """Each node is killed in turn and started again, at once or after some seconds: well between
    pops, as what is under way then may be done twice, and once as the others stand in for it."""
    with world.cluster() as cluster:
        cluster.start()
        load = Load(world.sink, "death")
        clients = [Client(node) for node in cluster.nodes]
        began = time.monotonic()
        for number in range(240):
            load.create(clients[number % 3], 5, 16)
            time.sleep(0.002)
        turns = ((0, 8, 0), (1, 13, 6), (2, 28, 0), (0, 33, 4.2), (1, 48, 0), (2, 53, 6))
        for place, at_s, away_s in turns:
            time.sleep(max(0, began + at_s - time.monotonic()))
            cluster.nodes[place].kill()
            time.sleep(away_s)
            cluster.nodes[place].start()
        load.await_end()
        # The kill may take an answer with it, and an original is 2 s late for ever after a death.
        return load.judge(late_s=8)


def freeze(world):
    """Each node is frozen in turn, for longer than it takes to declare it dead. Meanwhile timers are
    deleted and replaced through the others; all are due after the thaw."""
    with world.cluster() as cluster:
        cluster.start()
        load = Load(world.sink, "freeze")
        for frozen in cluster.nodes:
            clients = [Client(node) for node in cluster.nodes if node is not frozen]
            timers = [load.create(clients[number % 2], 13, 2) for number in range(80)]
            time.sleep(1)
            frozen.signal(signal.SIGSTOP)
            time.sleep(4)
            for number, timer in enumerate(timers):
                if timer is not None and number % 4 < 2:
                    load.delete(clients[number // 4 % 2], timer)
                elif timer is not None and number % 4 == 2:
                    load.replace(clients[number // 4 % 2], timer, 14, 1)
            time.sleep(4)
            frozen.signal(signal.SIGCONT)
            time.sleep(12)
        load.await_end()
        return load.judge(late_s=8)


def away(world):
    """The last node has a journal, if it is of this service, and is killed. What it holds is deleted
    and replaced through the others before it is back."""
    with world.cluster() as cluster:
        last = cluster.nodes[-1]
        last.environment = {"CHRONOS_JOURNAL_DATA_DIR": last.file("data")}
        cluster.start()
        load = Load(world.sink, "away")
        clients = [Client(node) for node in cluster.nodes]
        timers = [load.create(clients[number % 3], 15, 3) for number in range(240)]
        time.sleep(4)
        last.kill()
        time.sleep(4)
        for number, timer in enumerate(timers):
            if timer is not None and number % 3 == 0:
                load.delete(clients[number // 3 % 2], timer)
            elif timer is not None and number % 3 == 1:
                load.replace(clients[number // 3 % 2], timer, 16, 2)
        time.sleep(12)
        last.start()
        load.await_end()
        return load.judge(late_s=8)


def answer(world):
    """Each node is killed as it answers creates of 16 clients, and started again: what was answered
    is to pop. An original answers before it stores and before it tells others."""
    with world.cluster() as cluster:
        cluster.start()
        load = Load(world.sink, "answer")
        for node in cluster.nodes:
            threads = load.run([node] * 16, 300, time.monotonic() + 1, 6, 1)
            time.sleep(0.8)
            node.kill()
            for thread in threads:
                thread.join()
            node.start()
            time.sleep(3)
        load.await_end()
        return load.judge(late_s=8)


def scale(world):
    """By hand, as the original's documents say: the third node joins and leaves, under load."""
    with world.cluster() as cluster:
        *staying, third = cluster.nodes
        cluster.start(staying)
        load = Load(world.sink, "scale")
        until = time.monotonic() + 36
        threads = load.run(staying, 30, until, 4, 4)
        time.sleep(5)
        cluster.write_files(staying, joining=[third])
        third.start()
        steps(cluster, staying, [third], ())
        time.sleep(4)
        steps(cluster, staying, (), [third])
        third.stop()
        for thread in threads:
            thread.join()
        load.await_end()
        return load.judge()


def steps(cluster, staying, joining, leaving):
    """Lists with the change, HUP, USR1 on those that remain, time for it, the final lists."""
    cluster.write_files(staying, joining, leaving)
    send(cluster.nodes, signal.SIGHUP)
    time.sleep(2)
    send([*staying, *joining], signal.SIGUSR1)
    time.sleep(8)
    cluster.write_files([*staying, *joining])
    for node in leaving:
        cluster.write_files([node], of=[node])
    send([*staying, *joining], signal.SIGHUP)
    time.sleep(2)


def send(nodes, number):
    for node in nodes:
        node.signal(number)


def migrate(world):
    """Each node is replaced by one of the other kind and, later, back, under load. `C` for all
    three kinds: originals that are restarted instead, which is the control."""
    kinds = world.kinds
    with world.cluster("CCC") as cluster:
        cluster.start()
        load = Load(world.sink, "migrate")
        pause_s = 9
        turns = [(place, kind) for kind in (kinds[0], "C") for place in range(3)]
        threads = load.run(cluster.nodes, 100, time.monotonic() + pause_s * len(turns) + 12, 4, 3)
        for place, kind in turns:
            time.sleep(pause_s)
            node = cluster.nodes[place]
            node.stop()
            node.kind = kind
            node.start()
        for thread in threads:
            thread.join()
        load.await_end()
        return load.judge(late_s=6)


# URI, opaque data, interval, pops; URIs are made of a path of the sink.
ODD = {
    "a URI of 3,000 bytes": lambda path: (path + "?" + "u" * 2900, "o", 3, 2),
    "a URI of 16,000 bytes": lambda path: (path + "?" + "u" * 15900, "o", 3, 2),
    "a URI with bytes outside ASCII": lambda path: (path + "/\u00e9\u00fc\u4e2d", "o", 3, 2),
    "opaque data of 300 kB": lambda path: (path, "o" * 300_000, 3, 2),
    "opaque data of 900 kB": lambda path: (path, "o" * 900_000, 3, 2),
    "opaque data of 2 MB": lambda path: (path, "o" * 2_000_000, 3, 2),
    "opaque data that is escaped": lambda path: (path, '"\\\n\u00e9\u4e2d\t' * 500, 3, 2),
    "empty opaque data": lambda path: (path, "", 3, 2),
    "a quarter of a thousand repeats": lambda path: (path, "o", 3600, 250),
}


def odd(world):
    """Documents that an original takes: if it answers 200, they pop, whoever holds them."""
    with world.cluster() as cluster:
        cluster.start()
        load, tally = Load(world.sink, "odd"), Tally()
        originals = [node for node in cluster.nodes if node.kind == "C"]
        for what, shape in ODD.items():
            for node in originals:
                client = Client(node)
                for _ in range(12):
                    path, opaque, interval_s, pops = shape(load.path())
                    body = document(load.sink.uri(path), interval_s, pops, opaque)
                    timer = load.note(client, "POST", "/timers", path, interval_s, pops, body)
                    if timer is None:
                        tally.notes.append(f"{what}: refused by an original")
                        continue
                    timer.what = what
                time.sleep(0.05)
        near = [timer for timer in load.timers if timer.interval_s < 100]
        time.sleep(max(0, max((one.answered for one in near), default=0) + 14 - time.monotonic()))
        load.timers = near
        tally.add(load.judge())
        return tally


def join_sites(cluster):
    """The first two nodes are one site, the last two another. All files have the same list of
    sites, the local one in it, as the original's deployments do."""
    halves = (cluster.nodes[:2], cluster.nodes[2:])
    listed = [("near", halves[0][0].name), ("far", halves[1][0].name)]
    for half, (name, _) in zip(halves, listed):
        for node in half:
            node.site = (name, listed)
            # The nodes of a site that are not its address are told by none that is an original.
            node.environment = {"CHRONOS_CLUSTER_ACCEPT_STRANGERS": "true"}
    for half in halves:
        cluster.start(half)
    time.sleep(2)
    return halves


def sites(world):
    """Two sites of two nodes each, of the kinds of the first two and of the last two."""
    near, far = world.kinds[:2], world.kinds[1:]
    with world.cluster(near + far) as cluster:
        join_sites(cluster)
        load = Load(world.sink, "sites")
        clients = [Client(node) for node in cluster.nodes]
        changes = []
        for number in range(160):
            timer = load.create(clients[number % 4], 5, 3)
            if timer is not None and number % 4 == 0:
                changes.append((timer, clients[number // 4 % 4]))
            time.sleep(0.01)
        # Through either site, well after the write has reached both.
        time.sleep(2)
        for number, (timer, client) in enumerate(changes):
            if number % 2:
                load.delete(client, timer)
            else:
                load.replace(client, timer, 5, 2)
        load.await_end(late_s=10)
        return load.judge()


def site_dies(world):
    """A site dies, and is back with nothing, as originals always are."""
    return kill_site(world, has_journals=False)


def site_kept(world):
    """A site dies, and is back with its journals, if it is of this service."""
    return kill_site(world, has_journals=True)


def kill_site(world, has_journals):
    """Two sites, the first of nodes of the first kind alone, the second of the last kind. The second
    is killed under timers of both. Some are deleted and replaced through the first before the second
    is back."""
    with world.cluster(2 * world.kinds[0] + 2 * world.kinds[2]) as cluster:
        far = join_sites(cluster)[1]
        for node in far if has_journals else ():
            node.stop()
            node.environment["CHRONOS_JOURNAL_DATA_DIR"] = node.file("data")
            node.start()
        time.sleep(4)
        load = Load(world.sink, "site")
        clients = [Client(node) for node in cluster.nodes]
        timers = [load.create(clients[number % 4], 20, 3) for number in range(240)]
        time.sleep(4)
        for node in far:
            node.kill()
        for number, timer in enumerate(timers):
            if timer is not None and number % 3 == 0:
                load.delete(clients[number // 3 % 2], timer)
            elif timer is not None and number % 3 == 1:
                load.replace(clients[number // 3 % 2], timer, 22, 2)
        time.sleep(10)
        for node in far:
            node.start()
        load.await_end(late_s=12)
        return load.judge(late_s=9)


STORIES = {
    story.__name__: story
    for story in (calm, change, death, freeze, away, answer, scale, migrate, odd)
    + (sites, site_dies, site_kept)
}


def kinds_of(name):
    """The clusters that a story is told of: the control, all originals, comes first."""
    combinations = [a + b + c for a in "CR" for b in "CR" for c in "CR"]
    if name in ("site_dies", "site_kept"):
        return ["CCC", "CCR", "RRC", "RRR"]
    if name == "migrate":
        return ["CCC", "RRR"]
    if name == "odd":
        return [kinds for kinds in combinations if "C" in kinds]
    return combinations
