#!/usr/bin/env python3
"""Runs the code of a notebook, cell after cell in one interpreter, without Jupyter.

    scripts/notebook.py [--write] [NOTEBOOK]        # by default docs/notebooks/split.ipynb

The interpreter must have the package and what the notebook imports: pyarrow and pandas. scripts/python.py has such a
one. The first exception ends the run, with the cell's number as Jupyter would show it. --write puts what the cells
print and show into the notebook: texts, tables, and pictures as SVG.
"""

import argparse
import ast
import contextlib
import io
import json
import linecache
import sys
import traceback
from pathlib import Path

NOTEBOOK = Path(__file__).resolve().parent.parent / "docs" / "notebooks" / "split.ipynb"


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="store the outputs in the notebook")
    parser.add_argument("notebook", nargs="?", type=Path, default=NOTEBOOK)
    asked = parser.parse_args(arguments)
    notebook = json.loads(asked.notebook.read_text(encoding="utf-8"))
    variables = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                shown = run(number, "".join(cell["source"]), variables)
                data = None if shown is None else mime_bundle(shown)
        except BaseException:
            print(printed.getvalue(), end="")
            traceback.print_exc()
            print(f"{asked.notebook}: cell {number} of {len(cells)} fails", file=sys.stderr)
            return 1
        cell["execution_count"], cell["outputs"] = number, outputs(number, printed.getvalue(), data)
    if asked.write:
        asked.notebook.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{asked.notebook}: {len(cells)} cells ran")
    return 0


def run(number, source, variables):
    """Runs the cell; the value of the expression at its end, which a notebook shows."""
    name = f"<cell {number}>"
    # So that a traceback has the lines.
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    parsed = ast.parse(source, name)
    last = parsed.body.pop() if parsed.body and isinstance(parsed.body[-1], ast.Expr) else None
    exec(compile(parsed, name, "exec"), variables)
    return None if last is None else eval(compile(ast.Expression(last.value), name, "eval"), variables)


def mime_bundle(value):
    """What the value shows of itself: its text, and a picture, or else HTML."""
    data = {"text/plain": repr(value)}
    # A viewer of notebooks may take the styles out of HTML, and has those of a picture.
    for kind, method in (("image/svg+xml", "_repr_svg_"), ("text/html", "_repr_html_")):
        own = getattr(value, method, None)
        text = own() if callable(own) else None
        if text is not None:
            return {**data, kind: text}
    return data


def outputs(number, printed, data):
    """What the cell has printed and shown, as nbformat 4 has it."""
    found = []
    if printed:
        found.append({"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)})
    if data is not None:
        lines = {kind: text.splitlines(keepends=True) for kind, text in data.items()}
        shown = {"data": lines, "execution_count": number, "metadata": {}, "output_type": "execute_result"}
        found.append(shown)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
