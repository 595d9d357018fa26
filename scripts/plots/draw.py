"""Draws a description: `draw(picture, path, width)`, as SVG or PDF by the path's suffix.

Sizes are in inches, as printed: one column of a paper is 3.33 wide, a page 7. Text is at least 6 points at that size.
Needs matplotlib.
"""

import textwrap

import matplotlib
from matplotlib import pyplot, ticker
from matplotlib.patches import Patch, Rectangle

from . import colours

COLUMN, PAGE = 3.33, 7.0
# A ratio of values beyond which the lesser bars could not be seen.
LINEAR_MAX = 60.0
STYLE = {
    "font.size": 7, "axes.titlesize": 8, "axes.labelsize": 7, "xtick.labelsize": 6.5, "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5, "axes.linewidth": 0.6, "lines.linewidth": 1.1, "hatch.linewidth": 0.4,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
    "grid.color": "#D9D9D9", "grid.linewidth": 0.4, "legend.frameon": False, "figure.dpi": 100,
    # Text stays text, also in PDF, and the same description gives the same bytes.
    "svg.fonttype": "none", "pdf.fonttype": 42, "svg.hashsalt": "cleave",
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],
}


def draw(picture, path, width=PAGE):
    """Draws `picture` to `path`, `width` inches wide."""
    with matplotlib.rc_context(STYLE):
        drawn = {"bars": of_bars, "stacked": of_bars, "lines": of_lines, "curves": of_curves,
                 "cells": of_cells}[picture["kind"]](picture, width)
        no_dates = {"Date": None} if path.suffix == ".svg" else {"CreationDate": None}
        drawn.savefig(path, bbox_inches="tight", pad_inches=0.04, metadata=no_dates)
        pyplot.close(drawn)


def of_bars(picture, width):
    names, groups = picture["names"], picture["groups"]
    stacked = picture["kind"] == "stacked"
    many = sum(1 if stacked else len(group["values"]) for group in groups)
    longest = max([len(group["label"]) for group in groups] + [0])
    lying = longest * len(groups) * 0.062 > width - 0.6 or many > 12 * width
    thick = 0.085 if lying else None
    tall = 0.9 + thick * (many + 0.9 * len(groups)) if lying else max(1.5, 0.42 * width)
    figure, axes = pyplot.subplots(figsize=(width, tall))
    chosen, at, ticks = colours.of(names), 0.0, []
    values = [value for group in groups for value in group["values"].values() if isinstance(value, list)]
    positive = [value[0] for value in values if value[0] > 0]
    logarithmic = not stacked and bool(positive) and max(positive) / min(positive) > LINEAR_MAX
    bar, error = (axes.barh, "xerr") if lying else (axes.bar, "yerr")
    size = "height" if lying else "width"
    for group in groups:
        shown = [name for name in names if name in group["values"]]
        start, base = at, 0.0
        for name in shown:
            value = group["values"][name]
            style = {"color": chosen[name], "edgecolor": "black", "linewidth": 0.3,
                     "hatch": colours.HATCHES[names.index(name) % len(colours.HATCHES)], size: 0.92}
            if not isinstance(value, list):
                where = {"x": 0, "y": at} if lying else {"x": at, "y": 0}
                axes.text(**where, s=f" {value}", rotation=0 if lying else 90, fontsize=6,
                          va="center" if lying else "bottom", ha="left" if lying else "center")
            elif stacked:
                bar(at, value[0], **style, **{"left" if lying else "bottom": base})
                base += value[0]
                continue
            else:
                spread = [[max(value[0] - value[1], 0)], [max(value[2] - value[0], 0)]]
                bar(at, value[0], **style, **({error: spread, "error_kw": {"elinewidth": 0.7, "capsize": 1.5}}
                                              if spread != [[0], [0]] else {}))
            at += 1
        if stacked:
            if low_high := group.get("sum"):
                spread = [[max(base - low_high[0], 0)], [max(low_high[1] - base, 0)]]
                axes.errorbar(*((base, at) if lying else (at, base)), **{error: spread}, color="black", elinewidth=0.7,
                              capsize=1.5, fmt="none")
            at += 1
        ticks.append(((start + at - 1) / 2, group["label"]))
        at += 0.9
    places, labels = [place for place, _ in ticks], [label for _, label in ticks]
    over, along = (axes.yaxis, axes.xaxis) if lying else (axes.xaxis, axes.yaxis)
    over.set_ticks(places, labels)
    over.grid(False)
    over.set_label_text(picture.get("x", ""))
    (axes.set_ylim if lying else axes.set_xlim)(-0.9, max(at - 0.9, 0.1))
    if lying:
        axes.invert_yaxis()
    scale_values(axes, along, picture["y"], logarithmic, lying)
    legend(figure, [Patch(facecolor=chosen[name], edgecolor="black", linewidth=0.3, label=name,
                          hatch=colours.HATCHES[number % len(colours.HATCHES)])
                    for number, name in enumerate(names)])
    words(figure, picture, width)
    return figure


def scale_values(axes, along, unit, logarithmic, lying):
    if logarithmic:
        (axes.set_xscale if lying else axes.set_yscale)("log")
        along.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        along.set_minor_formatter(ticker.NullFormatter())
    else:
        along.set_major_locator(ticker.MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    along.set_label_text(f"{titled(unit)}, logarithmic" if logarithmic else titled(unit))


def titled(unit):
    """An axis title: units alone are of times, as what has another meaning says so."""
    return {"s": "time, s", "ms": "time, ms", "a second": "operations a second"}.get(unit, unit)


def of_lines(picture, width):
    figure, axes = pyplot.subplots(figsize=(width, max(1.5, 0.4 * width)))
    chosen = colours.of([series["name"] for series in picture["series"]])
    for number, series in enumerate(picture["series"]):
        points, colour = series["points"], chosen[series["name"]]
        x = [point[0] for point in points]
        axes.plot(x, [point[1] for point in points], color=colour, label=series["name"],
                  marker=colours.MARKERS[number % len(colours.MARKERS)], markersize=2.2)
        if points and all(len(point) == 4 for point in points):
            axes.fill_between(x, [point[2] for point in points], [point[3] for point in points], color=colour,
                              alpha=0.18, linewidth=0)
        for mark in picture["marks"]:
            if mark["series"] == number:
                axes.axvline(mark["at"], color=colour, linewidth=0.8, linestyle=(0, (3, 2)))
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(ticker.MaxNLocator(nbins=8, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1e3 else
                                                        f"{value:g}"))
    axes.set_xlabel(picture["x"])
    axes.set_ylabel(picture["y"])
    legend(figure, axes.get_legend_handles_labels()[0])
    words(figure, picture, width)
    return figure


def of_curves(picture, width):
    figure, axes = pyplot.subplots(figsize=(width, max(1.8, 0.5 * width)))
    chosen = colours.of([series["name"] for series in picture["series"]])
    for number, series in enumerate(picture["series"]):
        points = [(x, values) for x, values in series["points"] if x > 0 and min(values) > 0]
        middle = [values[0] for _, values in points]
        spread = [[max(value - low, 0) for value, low, _ in (values for _, values in points)],
                  [max(high - value, 0) for value, _, high in (values for _, values in points)]]
        axes.errorbar([100 * x for x, _ in points], middle, yerr=spread, color=chosen[series["name"]],
                      label=series["name"], marker=colours.MARKERS[number % len(colours.MARKERS)], markersize=3,
                      elinewidth=0.7, capsize=1.5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(ticker.NullFormatter())
    axes.set_xlabel(f"{picture['x']}, %, logarithmic")
    axes.set_ylabel(f"{titled(picture['y'])}, logarithmic")
    legend(figure, axes.get_legend_handles_labels()[0])
    words(figure, picture, width)
    return figure


def of_cells(picture, width):
    """The longer side of the table lies upright, so that it fits a page."""
    turned = len(picture["columns"]) > len(picture["rows"])
    across, down = (picture["rows"], picture["columns"]) if turned else (picture["columns"], picture["rows"])
    high = 0.16
    figure, axes = pyplot.subplots(figsize=(min(width, 0.9 + 0.62 * len(across)), 0.5 + high * len(down)))
    for cell in picture["cells"]:
        one, other = cell["row"], cell["column"]
        x, y = (across.index(one), down.index(other)) if turned else (across.index(other), down.index(one))
        colour, ink = colours.CELLS.get(cell["kind"], ("white", "black"))
        axes.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, facecolor=colour,
                                 edgecolor="black" if cell["framed"] else "none",
                                 linewidth=1.2 if cell["framed"] else 0))
        axes.text(x, y + 0.02, cell["text"], ha="center", va="center", color=ink, fontsize=6)
    axes.set_xlim(-0.5, len(across) - 0.5)
    axes.set_ylim(len(down) - 0.5, -0.5)
    axes.set_xticks(range(len(across)), across)
    axes.set_yticks(range(len(down)), down)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel(picture["y"] if turned else picture["x"])
    axes.set_ylabel(picture["x"] if turned else picture["y"])
    axes.tick_params(length=0)
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    legend(figure, [Patch(facecolor=colours.CELLS.get(kind, ("white",))[0], edgecolor="#8C8C8C", linewidth=0.3,
                          label=meaning) for kind, meaning in picture["legend"]])
    words(figure, picture, width)
    return figure


def legend(figure, handles):
    """Below the axes, in as many rows as it needs."""
    if not handles:
        return
    wide = figure.get_figwidth()
    longest = max(len(str(handle.get_label())) for handle in handles)
    fitting = max(1, min(len(handles), int(wide / (0.42 + 0.058 * longest))))
    rows = -(-len(handles) // fitting)
    columns = -(-len(handles) // rows)
    figure.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, below(figure)), ncols=columns,
                  handlelength=1.4, columnspacing=1.0, borderaxespad=0)


def below(figure):
    """Where what lies below the axes begins, as a share of the figure's height: under labels and the axis title."""
    figure.canvas.draw()
    [axes] = figure.axes
    box = axes.get_tightbbox().transformed(figure.transFigure.inverted())
    return box.y0 - 0.05 / figure.get_figheight()


def words(figure, picture, width):
    """The title above, wrapped, and the notes below the legend."""
    tall = figure.get_figheight()
    [axes] = figure.axes
    box = axes.get_tightbbox().transformed(figure.transFigure.inverted())
    left = min(box.x0, 0.02)
    across = int(figure.get_figwidth() * 13)
    figure.text(left, box.y1 + 0.06 / tall, "\n".join(textwrap.wrap(picture["title"], across)), fontsize=8,
                fontweight="bold", va="bottom", ha="left")
    notes = [line for note in picture["notes"] for line in textwrap.wrap(note, int(figure.get_figwidth() * 19))]
    if notes:
        legends = sum(shown.get_window_extent().height for shown in figure.legends) / figure.dpi
        bottom = below(figure) - (legends + 0.06) / tall
        figure.text(left, bottom, "\n".join(notes), fontsize=6, va="top", ha="left", color="#444444")
