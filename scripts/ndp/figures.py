"""Medians, intervals and the comparison of rows. Pure functions; `self_test` checks them."""

import csv
import hashlib
import io
import math
import re
import statistics

FLOAT_TOLERANCE = 1e-9  # relative, where sums are made in another order
PAR_SHARE = 0.05        # as fast as the host, within this
AUTO_SHARE_MAX = 1.1    # of the best forced split


def interval(values):
    """The order statistics that hold the median with at least 95 % for six values or more; else both ends."""
    ordered = sorted(values)
    count = len(ordered)
    rank = 0
    # The chance that the median lies below the next inner order statistic, on either side, is that of so few heads.
    while 2 * sum(math.comb(count, heads) for heads in range(rank + 2)) / 2 ** count <= 0.05:
        rank += 1
    return ordered[rank], ordered[count - 1 - rank]


def geometric_mean(values):
    values = list(values)
    return math.exp(statistics.fmean(math.log(value) for value in values)) if values else None


def median(values):
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def is_regression(auto_ms, host_ms):
    """Whether the interval of `auto` lies wholly above host-only plus the tolerance: 5 %, at least 5 ms."""
    host = statistics.median(host_ms)
    return interval(auto_ms)[0] > host + max(PAR_SHARE * host, 5.0)


def verdict(speed_up):
    """The name of a speed-up over host-only."""
    if speed_up is None:
        return "none"
    if speed_up >= 1 / (1 - PAR_SHARE):
        return "better"
    return "par" if speed_up >= 1 / (1 + PAR_SHARE) else "worse"


def quality(ratio):
    """The name of a choice that takes `ratio` times the best forced split's time."""
    if ratio is None:
        return "none"
    return "best" if ratio <= AUTO_SHARE_MAX else "near" if ratio <= 1.5 else "missed"


def checksum(lines):
    """A checksum that is the same for the same rows in any order."""
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]


def same_rows(found, wanted):
    """Whether two results, lists of CSV lines, hold the same rows in any order, floating-point values within 1e-9."""
    if len(found) != len(wanted):
        return False
    if sorted(found) == sorted(wanted):
        return True
    return all(same_row(*pair) for pair in zip(sorted(map(cells, found), key=row_order),
                                               sorted(map(cells, wanted), key=row_order)))


def cells(line):
    return next(csv.reader(io.StringIO(line)), [])


def row_order(row):
    # What may differ in its last digits comes last, or neighbours would change places.
    return [cell for cell in row if not is_float(cell)], [float(cell) for cell in row if is_float(cell)]


def is_float(cell):
    # A whole number has no last digits that may differ.
    return re.fullmatch(r"-?\d+(\.\d+([eE][-+]?\d+)?|[eE][-+]?\d+)", cell) is not None


def same_row(found, wanted):
    return len(found) == len(wanted) and all(
        a == b or (is_float(a) and is_float(b) and math.isclose(float(a), float(b), rel_tol=FLOAT_TOLERANCE))
        for a, b in zip(found, wanted))
