#!/usr/bin/env python3
"""Draws the output of a command as an SVG of a terminal, in colour: docs/terminal.py OUT.svg COMMAND …"""

import html
import os
import pty
import re
import shlex
import sys

COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "36": "#76e3ea", "35": "#d2a8ff",
           "91": "#ff7b72", "92": "#7ee787", "93": "#e3b341", "94": "#79c0ff", "96": "#76e3ea"}
WIDTH, HEIGHT, MARGIN = 8.4, 20, 18
# Consecutive plain spaces would be merged.
NO_BREAK = "\u00a0"


def recorded(command):
    """Output of the command on a terminal."""
    chunks = []

    def read(descriptor):
        chunk = os.read(descriptor, 4096)
        chunks.append(chunk)
        # An empty chunk means end of file.
        return chunk

    pty.spawn(command, read)
    return b"".join(chunks).decode().replace("\r", "")


def spans(line, state):
    """Texts of a line with their colour and weight."""
    for part in re.split(r"(\x1b\[[\d;]*m)", line):
        codes = re.fullmatch(r"\x1b\[([\d;]*)m", part)
        if codes:
            for code in codes[1].split(";"):
                if code in ("", "0"):
                    state.clear()
                elif code == "1":
                    state["font-weight"] = "700"
                elif code in COLOURS:
                    state["fill"] = COLOURS[code]
        elif part:
            yield part, dict(state)


def main():
    out, command = sys.argv[1], sys.argv[2:]
    shown = "$ bespoke " + shlex.join(command[1:])
    lines = [shown, *recorded(command).rstrip("\n").split("\n")]
    bare = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in lines]
    width = round(max(map(len, bare)) * WIDTH + 2 * MARGIN)
    height = len(lines) * HEIGHT + 2 * MARGIN - 6
    rows, state = [], {}
    for number, line in enumerate(lines):
        column, texts = 0, []
        for text, style in spans(line, state):
            attributes = "".join(f' {name}="{value}"' for name, value in style.items())
            texts.append(f'<tspan x="{MARGIN + column * WIDTH:.1f}"{attributes}>{html.escape(text, quote=False).replace(" ", NO_BREAK)}</tspan>')
            column += len(text)
        rows.append(f'<text y="{MARGIN + 10 + number * HEIGHT}">{"".join(texts)}</text>')
    with open(out, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">\n'
                   f"<title>{html.escape(shown)}</title>\n"
                   f'<rect width="100%" height="100%" rx="10" fill="#16191d"/>\n'
                   '<g fill="#d6dae0" font-size="14" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace">\n'
                   + "\n".join(rows) + "\n</g>\n</svg>\n")


main()
