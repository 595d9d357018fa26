"""Pictures as SVG: heat maps, bars, lines and curves, readable on light and on dark pages, without a library.

Colours are classes, defined once for both kinds of pages. Every cell also shows its figure or sign, so that nothing
depends on telling red from green. Coordinates are pixels.
"""

import math
from xml.sax.saxutils import escape

STYLE = """
  text { font: 11px system-ui, sans-serif; fill: #1f2328 } .title { font-size: 14px; font-weight: 600 }
  .small { font-size: 9px } .axis { stroke: #8c959f; stroke-width: 1 } .mark { stroke: #1f2328; stroke-width: 1.2 }
  .page { fill: #ffffff } .grid { stroke: #d0d7de; stroke-width: 0.5 }
  .best { stroke: #1f2328; stroke-width: 2; fill: none }
  .better3 { fill: #1a9850 } .better2 { fill: #66bd63 } .better1 { fill: #b8e3a4 } .par { fill: #fee391 }
  .worse1 { fill: #fdc9b0 } .worse2 { fill: #f4875f } .worse3 { fill: #d7462f } .none { fill: #eaeef2 }
  .near { fill: #fee391 } .missed { fill: #b1bac4 }
  .s0 { fill: #4c78a8 } .s1 { fill: #f58518 } .s2 { fill: #72b7b2 } .s3 { fill: #b279a2 } .s4 { fill: #9d755d }
  .s5 { fill: #54a24b } .s6 { fill: #8c959f } .ink { fill: #1f2328 }
  .line { fill: none; stroke-width: 1.6 } .dashed { stroke-width: 1; stroke-dasharray: 4 3 }
  .l0 { stroke: #4c78a8 } .l1 { stroke: #f58518 } .l2 { stroke: #72b7b2 } .l3 { stroke: #b279a2 }
  .l4 { stroke: #9d755d } .l5 { stroke: #54a24b } .l6 { stroke: #8c959f }
  @media (prefers-color-scheme: dark) {
    text, .ink { fill: #e6edf3 } .page { fill: #0d1117 } .mark, .best { stroke: #e6edf3 } .grid { stroke: #30363d }
    .none { fill: #21262d } .missed { fill: #57606a } .cell { fill: #10151b }
    .none + .cell, .missed + .cell { fill: #e6edf3 }
  }
"""


def heat_map(title, rows, columns, cell, legend, notes=()):
    """A cell for each row and column. `cell(row, column)` gives (class, text, whether it is framed, the text on
    hovering), or None for an empty cell."""
    left = 12 + 7 * max([len(row) for row in rows] + [4])
    width, height, top = 54, 20, 64
    body = []
    for x, column in enumerate(columns):
        body.append(text(left + x * width + width / 2, top - 6, column, anchor="middle"))
    for y, row in enumerate(rows):
        body.append(text(left - 6, top + y * height + 14, row, anchor="end"))
        for x, column in enumerate(columns):
            found = cell(row, column)
            if found is None:
                continue
            kind, label, framed, hover = found
            at_x, at_y = left + x * width, top + y * height
            body.append(f'<g><title>{escape(hover)}</title>{rect(at_x + 1, at_y + 1, width - 2, height - 2, kind)}'
                        f'{text(at_x + width / 2, at_y + 14, label, anchor="middle", kind="cell")}</g>')
            if framed:
                body.append(rect(at_x + 1, at_y + 1, width - 2, height - 2, "best"))
    bottom = top + len(rows) * height + 24
    x = left
    for kind, label in legend:
        body.append(rect(x, bottom - 10, 12, 12, kind))
        body.append(text(x + 16, bottom, label))
        x += 30 + 6.5 * len(label)
    for number, note in enumerate(notes):
        body.append(text(12, bottom + 20 + 15 * number, note))
    wide = max(left + len(columns) * width + 20, x, 12 + 6 * max([len(note) for note in notes] + [len(title) + 10]))
    return picture(title, wide, bottom + 20 + 15 * len(notes), body)


def bars(title, groups, names, unit="ms", notes=(), stacked=False):
    """Bars in groups. `groups` is [(label, {name: (value, low, high) or a text with the reason why there is no bar})];
    with `stacked`, the parts of one bar, whose low and high are not drawn."""
    left, top, plot, bar = 60, 64, 220, 20
    tops = [sum(v[0] for v in drawn(found)) if stacked else v[2] for _, found in groups
            for v in (drawn(found)[:1] if stacked else drawn(found))]
    scale_max = nice_ceiling(max(tops + [1e-9]))
    body, base = [], top + plot
    steps = [(step, base - plot * step / 4) for step in range(5)]
    for step, y in steps:
        body.append(text(left - 6, y + 4, f"{scale_max * step / 4:g}", anchor="end"))
    body.append(text(left - 6, top - 14, unit, anchor="end"))
    x, ends = left + 14, []
    for label, found in groups:
        start = x
        if stacked:
            y = base
            for number, name in enumerate(names):
                value = found.get(name)
                if isinstance(value, tuple):
                    tall = plot * value[0] / scale_max
                    y -= tall
                    body.append(hovering(rect(x, y, bar * 1.4, tall, f"s{number % 7}"),
                                         f"{label}, {name}: {value[0]:.1f} {unit}"))
            if not drawn(found):
                body.append(text(x + bar * 0.7, base - 4, next(iter(found.values()), "none"), "small", "start", -90))
            x += bar * 1.4
        else:
            for number, name in enumerate(names):
                value = found.get(name)
                if value is None:
                    continue
                if isinstance(value, tuple):
                    tall = plot * value[0] / scale_max
                    low, high = (base - plot * bound / scale_max for bound in value[1:])
                    body.append(hovering(rect(x, base - tall, bar - 2, tall, f"s{number % 7}"),
                                         f"{label}, {name}: {value[0]:.1f} {unit} ({value[1]:.1f} to {value[2]:.1f})"))
                    body.append(line(x + bar / 2 - 1, low, x + bar / 2 - 1, high, "mark"))
                else:
                    body.append(text(x + bar / 2 + 3, base - 4, value, "small", "start", -90))
                x += bar
        body.append(text((start + x) / 2, base + 16, label, anchor="middle"))
        x = max(x, start + 6.5 * len(label)) + 18
        ends.append(x)
    wide = max([x, 480, 12 + 6 * max([len(note) for note in notes] + [len(title) + 10])])
    body = [line(left, y, x, y, "grid") for _, y in steps] + body
    body.append(line(left, base, x, base, "axis"))
    at = left
    for number, name in enumerate(names):
        body.append(rect(at, base + 30, 12, 12, f"s{number % 7}"))
        body.append(text(at + 16, base + 40, name))
        at += 34 + 6.5 * len(name)
    for number, note in enumerate(notes):
        body.append(text(12, base + 62 + 15 * number, note))
    return picture(title, max(wide, at), base + 62 + 15 * len(notes), body)


def lines(title, series, unit, marks=(), notes=()):
    """Lines over time. `series` is [(name, [(x, y)])], x in seconds; `marks` is [(name, x, the number of the series it
    belongs to)], drawn upright."""
    left, top, plot, wide = 64, 64, 220, 640
    points = [point for _, found in series for point in found]
    x_max = max([x for x, _ in points] + [x for _, x, _ in marks] + [1e-9])
    y_max = nice_ceiling(max([y for _, y in points] + [1e-9]))
    base = top + plot
    body = []
    for step in range(5):
        y = base - plot * step / 4
        body += [line(left, y, left + wide, y, "grid"), text(left - 6, y + 4, f"{y_max * step / 4:g}", anchor="end")]
    body += [text(12, top - 14, unit), line(left, base, left + wide, base, "axis")]
    x_step = nice_ceiling(x_max / 8)
    for step in range(int(x_max / x_step + 1e-9) + 1):
        body.append(text(left + wide * step * x_step / x_max, base + 16, f"{step * x_step:g} s", anchor="middle"))
    for name, x, number in marks:
        at = left + wide * x / x_max
        body.append(hovering(line(at, top, at, base, f"l{number % 7} dashed"), f"{name}: {x:.2f} s"))
    at = left
    for number, (name, found) in enumerate(series):
        path = " ".join(f"{left + wide * x / x_max:.1f},{base - plot * y / y_max:.1f}" for x, y in found)
        body.append(hovering(f'<polyline points="{path}" class="line l{number % 7}"/>', name))
        body += [rect(at, base + 30, 12, 12, f"s{number % 7}"), text(at + 16, base + 40, name)]
        at += 34 + 6.5 * len(name)
    for number, note in enumerate(notes):
        body.append(text(12, base + 62 + 15 * number, note))
    wide = max([left + wide + 20, at, 24 + 8.5 * len(title)] + [12 + 6 * len(note) for note in notes])
    return picture(title, wide, base + 62 + 15 * len(notes), body)


def curves(title, series, x_name, unit, notes=()):
    """Lines over a share, both scales logarithmic. `series` is [(name, [(x, (value, low, high))])]."""
    left, top, plot, wide = 64, 64, 260, 560
    points = [(x, value) for _, found in series for x, values in found for value in values if x > 0 and value > 0]
    x_least, x_steps = decades([x for x, _ in points])
    y_least, y_steps = decades([y for _, y in points])
    base, body = top + plot, []

    def place(x, y):
        return (left + wide * (math.log10(x) - x_least) / x_steps, base - plot * (math.log10(y) - y_least) / y_steps)

    for step in range(y_steps + 1):
        _, y = place(10 ** x_least, 10 ** (y_least + step))
        body += [line(left, y, left + wide, y, "grid"),
                 text(left - 6, y + 4, f"{10.0 ** (y_least + step):g}", anchor="end")]
    for step in range(x_steps + 1):
        x, _ = place(10 ** (x_least + step), 10 ** y_least)
        body += [line(x, top, x, base, "grid"),
                 text(x, base + 16, f"{100 * 10.0 ** (x_least + step):g} %", anchor="middle")]
    body += [text(12, top - 14, unit), text(left + wide, base + 32, x_name, anchor="end"),
             line(left, base, left + wide, base, "axis")]
    at = left
    for number, (name, found) in enumerate(series):
        at_points = [(*place(x, values[0]), x, values) for x, values in sorted(found) if x > 0 and min(values) > 0]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in at_points)
        body.append(hovering(f'<polyline points="{path}" class="line l{number % 7}"/>', name))
        for x, y, share, (value, low, high) in at_points:
            body.append(line(x, place(share, low)[1], x, place(share, high)[1], f"l{number % 7}"))
            body.append(hovering(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" class="s{number % 7}"/>',
                                 f"{name}, {100 * share:.3g} %: {value:.3g} {unit} ({low:.3g} to {high:.3g})"))
        body += [rect(at, base + 46, 12, 12, f"s{number % 7}"), text(at + 16, base + 56, name)]
        at += 34 + 6.5 * len(name)
    for number, note in enumerate(notes):
        body.append(text(12, base + 78 + 15 * number, note))
    wide = max([left + wide + 20, at, 24 + 8.5 * len(title)] + [12 + 6 * len(note) for note in notes])
    return picture(title, wide, base + 78 + 15 * len(notes), body)


def decades(values):
    """(the power of ten at or below the least value, how many powers of ten further on the largest lies)."""
    if not values:
        return 0, 1
    least = math.floor(math.log10(min(values)) + 1e-9)
    return least, max(1, math.ceil(math.log10(max(values)) - 1e-9) - least)


def drawn(found):
    return [value for value in found.values() if isinstance(value, tuple)]


def nice_ceiling(value):
    step = 10 ** math.floor(math.log10(value))
    return next(factor * step for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if factor * step >= value * 0.999999)


def picture(title, width, height, body):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" '
            f'role="img">\n<title>{escape(title)}</title>\n<style>{STYLE}</style>\n'
            f'{rect(0, 0, width, height, "page")}\n{text(12, 24, title, "title")}\n' + "\n".join(body) + "\n</svg>\n")


def rect(x, y, width, height, kind):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(height, 0):.1f}" class="{kind}"/>'


def line(x1, y1, x2, y2, kind):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def text(x, y, words, kind="", anchor="start", turned=0):
    turn = f' transform="rotate({turned} {x:.1f} {y:.1f})"' if turned else ""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}{turn}>{escape(str(words))}</text>'


def hovering(shape, words):
    return f"<g><title>{escape(words)}</title>{shape}</g>"
