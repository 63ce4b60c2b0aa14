"""Mixed clusters of this service and real original nodes: runs the stories and compares the counts
with those of original nodes alone. Called by `run`, which tells the arguments."""

import argparse
import multiprocessing
import os
import sys
import tempfile
import time

import stories
from cluster import Binaries
from traffic import Tally

# What must not be more beside ours than among originals alone. Their own counts differ from run to
# run: where they have some, twice as many and a few are the same.
BOUND = ("lost", "doubled", "after", "early")


def tell(task):
    """One story of one cluster, in a process of its own."""
    (name, kinds, block, arguments) = task
    Binaries.ours, Binaries.original = arguments.chronos, arguments.original
    folder = os.path.join(arguments.folder, f"{name}-{kinds}")
    began = time.monotonic()
    try:
        tally = stories.STORIES[name](stories.World(folder, block, kinds, arguments.seed))
    except Exception as error:  # A story that breaks is a failure of the run, told with the rest.
        return name, kinds, None, f"{type(error).__name__}: {error}", time.monotonic() - began
    return name, kinds, tally, "", time.monotonic() - began


def is_within(tally, control):
    """Whether the counts are none that originals alone would not have."""

    def bound(name):
        own = getattr(control, name) * max(1, tally.required) / max(1, control.required)
        return 0 if own == 0 else 2 * own + 3

    return all(getattr(tally, name) <= bound(name) for name in BOUND)


def parse():
    parser = argparse.ArgumentParser(prog="tests/originals/run")
    parser.add_argument("--original", required=True, help="the program of an original node")
    parser.add_argument("--chronos", required=True, help="the program of this service")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--jobs", type=int, default=3, help="stories at a time")
    parser.add_argument("--kinds", nargs="*", help="only these clusters, such as RCC")
    parser.add_argument("--notes", type=int, default=6, help="findings told per cluster")
    parser.add_argument("stories", nargs="*", help=f"of {', '.join(stories.STORIES)}")
    return parser.parse_args()


def main():
    arguments = parse()
    names = arguments.stories or list(stories.STORIES)
    tasks, block = [], 64
    with tempfile.TemporaryDirectory(prefix="originals-") as arguments.folder:
        for name in names:
            for kinds in stories.kinds_of(name):
                if not arguments.kinds or kinds in arguments.kinds or kinds == "CCC":
                    tasks.append((name, kinds, block, arguments))
                    block += 1
        print(f"{'story':<8} {'nodes':<6}" + " ".join(f"{one:>8}" for one in Tally.NAMES), flush=True)
        with multiprocessing.Pool(arguments.jobs, maxtasksperchild=1) as pool:
            is_good = report(pool.imap(tell, tasks, chunksize=1), arguments)
    print("C: an original node, R: this service. CCC is the control: originals alone.")
    print("All is as among originals, or better." if is_good else "FAILED: see the rows marked !!")
    return 0 if is_good else 1


def report(results, arguments):
    is_good, controls = True, {}
    for name, kinds, tally, trouble, took_s in results:
        if tally is None:
            is_good = False
            print(f"{name:<8} {kinds:<6} !! {trouble}", flush=True)
            continue
        if kinds == "CCC":
            controls[name] = tally
        control = controls.get(name, Tally())
        mark = "" if is_within(tally, control) else " !!"
        is_good = is_good and not mark
        print(f"{name:<8} {kinds:<6}{tally.row()} {took_s:6.0f} s{mark}", flush=True)
        for note in tally.notes[: arguments.notes]:
            print(f"    {note}", flush=True)
        if len(tally.notes) > arguments.notes:
            print(f"    and {len(tally.notes) - arguments.notes} more", flush=True)
    return is_good


if __name__ == "__main__":
    sys.exit(main())
