#!/usr/bin/env python3
"""Draws one layer of a decode step as SVG, from tables of `bespoke bench --timeline`.

    timeline.py FILE HEADING...

FILE is Markdown with such tables, each after a line that begins with a HEADING. The bars are means of all layers; of kinds
of launches with several kernels, those of the kernel with the most launches, the first among equals. A bar is light until its
first CTA continues after the wait for earlier launches.
"""

import html
import sys

LAYER = ["attn_qkv", "attention", "attn_output", "ffn_gate_up", "ffn_down"]
LEFT, ROW, SCALE, TOP = 110, 22, 14, 34  # pixels; SCALE is pixels a microsecond


def launches(lines, heading):
    """Early, gap and work of the launches of a layer, in µs, from the table after `heading`."""
    start = next((i for i, line in enumerate(lines) if line.startswith(heading)), None)
    if start is None:
        sys.exit(f"no line begins with {heading!r}")
    best = {}
    for line in lines[start + 1 :]:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if best and not line.startswith("|"):
            break
        if line.startswith("|") and cells[0] in LAYER:
            count, *times = (float(cell) for cell in cells[2:6])
            if count > best.get(cells[0], [0])[0]:
                best[cells[0]] = [count, *times]
    missing = [name for name in LAYER if name not in best]
    if missing:
        sys.exit(f"the table after {heading!r} has no {', '.join(missing)}")
    return [(name, *best[name][1:]) for name in LAYER]


def draw(heading, layer, top, out):
    """Appends the elements of a layer's picture; returns its end in µs, from the end of the launch before the layer."""
    out.append(f'<text x="4" y="{top}" font-weight="bold">{html.escape(heading.rstrip(".:"))}</text>')
    before = 0.0
    for index, (name, early, gap, work) in enumerate(layer):
        y = top + 10 + index * ROW
        bars = [(before - early, before + gap, "#b9cfe8"), (before + gap, before + gap + work, "#3b73af")]
        out.append(f'<text x="4" y="{y + 13}">{name}</text>')
        for start, end, colour in bars:
            x, width = LEFT + (start + 8) * SCALE, (end - start) * SCALE
            out.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 6}" fill="{colour}"/>')
        before += gap + work
        out.append(f'<text x="{LEFT + (before + 8) * SCALE + 4:.1f}" y="{y + 13}">{gap + work:.1f} µs</text>')
    return before


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        lines = file.read().splitlines()
    out, top, longest = [], TOP - 14, 0.0
    for heading in sys.argv[2:]:
        longest = max(longest, draw(heading, launches(lines, heading), top, out))
        top += (len(LAYER) + 1) * ROW + 14
    width = LEFT + (longest + 8) * SCALE + 80
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{top}" font-family="sans-serif" font-size="12">')
    print(f'<rect width="100%" height="100%" fill="white"/>', *out, "</svg>", sep="\n")


if __name__ == "__main__":
    main()
