"""Operations in slices of time, shares kept, waits. Pure functions; `self_test` checks them.

Times are seconds of the machine's clock. An operation counts where it ends.
"""

import statistics


def slices(operations, begin, end, width):
    """[(seconds since `begin`, reads a second, updates a second, aborts a second)] for each slice."""
    count = max(1, int((end - begin) / width + 1e-9))
    reads, updates, aborts = ([0] * count for _ in range(3))
    for one in operations:
        place = int((one.end - begin) / width)
        if begin <= one.end and place < count:
            (aborts if one.is_aborted else updates if one.is_update else reads)[place] += 1
    return [(place * width, reads[place] / width, updates[place] / width, aborts[place] / width)
            for place in range(count)]


def rate(operations, begin, end, is_update=None):
    """Operations a second that succeeded within a time; of one kind, or of all."""
    if end <= begin:
        return None
    return sum(begin <= one.end < end and not one.is_aborted and is_update in (None, one.is_update)
               for one in operations) / (end - begin)


def kept(operations, before, during, is_update=None):
    """The rate during one time as a share of that before; None if there was none."""
    base = rate(operations, *before, is_update)
    now = rate(operations, *during, is_update)
    return now / base if base and now is not None else None


def longest(operations, begin, end, is_update=None):
    """The longest operation that ran at some moment of a time."""
    return max((one.seconds for one in operations if one.end >= begin and one.end - one.seconds < end
                and is_update in (None, one.is_update)), default=None)


def percentile(operations, share, begin, end):
    """The time below which a share of the operations that ended within a time stay."""
    times = sorted(one.seconds for one in operations if begin <= one.end < end and not one.is_aborted)
    return times[min(len(times) - 1, int(len(times) * share))] if times else None


def aborts(operations, begin, end):
    return sum(one.is_aborted and begin <= one.end < end for one in operations)


def recovery_seconds(operations, before, since, until, width, share=0.9):
    """Seconds from `since` until the rate is back: the first slice with `share` of the rate before; None if none."""
    base = rate(operations, *before)
    if not base:
        return None
    return next((at + width for at, reads, updates, _ in slices(operations, since, until, width)
                 if reads + updates >= share * base), None)


def ratios(ours, theirs):
    """Round by round: theirs over ours, so that above 1 ours is the faster one."""
    return [b / a for a, b in zip(ours, theirs) if a and b]


def spread(values):
    """(median, least, largest)."""
    values = [value for value in values if value is not None]
    return (statistics.median(values), min(values), max(values)) if values else None
