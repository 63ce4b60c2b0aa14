"""Records what a script prints as a text cast, and draws a cast as SVG. Standard library only.

    cast.py record SCRIPT > CAST     runs `bash SCRIPT` and records
    cast.py draw CAST > SVG          draws; the same cast gives the same bytes

A cast is a file of asciicast, version 2: a header, then a line of JSON for each piece of output.
"""

import json
import subprocess
import sys
import time
from html import escape

COLUMNS = 96
# Longest silence that a player of the cast should show, in seconds.
SILENCE_MAX = 1.5
# Size of a character, and of the room around the text, in pixels.
WIDTH, HEIGHT, ROOM = 8, 19, 18
STYLE = """
.card { fill: #fbfbfa; stroke: #d4d4d0 }
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  fill: #24292f; white-space: pre }
.typed { fill: #0550ae; font-weight: bold }
.said { fill: #59636e; font-style: italic }
.at { fill: #818b98; text-anchor: end }
@media (prefers-color-scheme: dark) {
  .card { fill: #14181d; stroke: #3d444d }
  text { fill: #d1d7e0 }
  .typed { fill: #79c0ff }
  .said { fill: #9198a1 }
  .at { fill: #768390 }
}
"""


def record(script):
    """Prints the cast of a script."""
    print(json.dumps({"version": 2, "width": COLUMNS, "height": 40, "idle_time_limit": SILENCE_MAX}))
    begun = time.monotonic()
    running = subprocess.Popen(
        ["bash", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    while piece := running.stdout.read1(65536):
        at = round(time.monotonic() - begun, 2)
        print(json.dumps([at, "o", piece.decode()]), flush=True)
    return running.wait()


def lines_of(cast):
    """Returns each line of the cast with the second at which it came."""
    pieces = [json.loads(line) for line in cast.splitlines()[1:]]
    lines, at, rest = [], 0.0, ""
    for at, _, text in pieces:
        *whole, rest = (rest + text).split("\n")
        lines += [(at, line) for line in whole]
    return lines + ([(at, rest)] if rest else [])


def drawn(cast):
    """Returns the picture of a cast: all lines, and when each command was typed.

    Nothing moves, so that the picture can be read at once, and wherever it is shown.
    """
    lines = lines_of(cast)
    width = COLUMNS * WIDTH + 2 * ROOM
    height = len(lines) * HEIGHT + 2 * ROOM
    picture = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"',
        f' width="{width}" height="{height}" aria-label="A recorded terminal">',
        f"<style>{STYLE}</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
    ]
    for place, (at, line) in enumerate(lines):
        kind = {"$ ": "typed", "# ": "said"}.get(line[:2], "shown")
        y = ROOM + place * HEIGHT + 14
        picture.append(
            f'<text class="{kind}" x="{ROOM}" y="{y}" xml:space="preserve">{escape(line)}</text>'
        )
        # A long command leaves no room for it.
        if kind != "shown" and len(line) < COLUMNS - 10:
            picture.append(f'<text class="at" x="{width - ROOM}" y="{y}">{at:.1f} s</text>')
    return "\n".join(picture) + "\n</svg>\n"


def main():
    match sys.argv[1:]:
        case ["record", script]:
            return record(script)
        case ["draw", cast]:
            with open(cast, encoding="utf-8") as file:
                sys.stdout.write(drawn(file.read()))
            return 0
    sys.exit(__doc__)


sys.exit(main())
