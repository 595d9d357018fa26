"""Rules of choice, tried over recorded runs of every split: nothing runs.

The record is that of `choices`: for each query what is predicted of every split, and runs of each as `auto` would run
it. A rule takes the predictions and names a split; what it would have taken is that split's least time. Least times are
compared, since a busy machine makes runs longer and never shorter. Splits that only `auto` can name (`h2*`) were not
run, and so cannot be chosen.

`expected` is the rule of `crates/cleave-plan/src/split/gain.rs`, for other figures than its own.
"""

import math
import statistics

from . import figures, results


def write(folder, rules=None):
    records, _ = results.read(folder / "measurements.jsonl")
    places = {}
    for record in records.values():
        if record["experiment"] == "choices":
            places.setdefault(results.place_of(record), []).append(record)
    if not places:
        raise SystemExit(f"{folder} holds no runs of `choices`")
    for place, kept in places.items():
        queries = queries_of(kept)
        print(f"{dict(zip(results.PLACE, place))}: {len(queries)} queries")
        print("| rule | within 1.1x of the best | over the best | over host-only | slower than host-only |")
        print("|---|---|---|---|---|")
        for name, rule in (rules or RULES).items():
            judged = judge(queries, rule)
            print(f"| {name} | {judged['near_best_share']:.0%} | {judged['over_best']:.3f}x | {judged['gain']:.3f}x | "
                  f"{', '.join(judged['slower']) or 'none'} |")
        print(flush=True)


def queries_of(records):
    """{query: ({split: prediction}, {split: least ms})} of the queries whose every split was run."""
    found = {}
    for record in records:
        predicted, times = found.setdefault(record["query"], ({}, {}))
        if "predicted" in record:
            predicted.update(record["predicted"])
        elif not record["error_kind"]:
            way = record["way"]
            times[way] = min(times.get(way, math.inf), record["total_ms"])
    return {query: (predicted, times) for query, (predicted, times) in found.items()
            if "host" in times and len(predicted) > 1}


def judge(queries, rule):
    ratios, gains, slower = [], [], []
    for query, (predicted, times) in queries.items():
        ran = {split: of for split, of in predicted.items() if split in times}
        took = times[rule(ran)]
        best = min(times[split] for split in ran)
        ratios.append(took / best)
        gains.append(times["host"] / took)
        if figures.is_regression([took], [times["host"]]):
            slower.append(query)
    return {"near_best_share": sum(ratio <= figures.AUTO_SHARE_MAX for ratio in ratios) / max(len(ratios), 1),
            "over_best": figures.geometric_mean(ratios), "gain": figures.geometric_mean(gains), "slower": slower}


def least(share_max):
    """The least prediction, if it is at most this share of the host's."""
    def rule(predicted):
        best = min((split for split in predicted if predicted[split]["fits"]),
                   key=lambda split: predicted[split]["finish_ms"])
        return best if predicted[best]["finish_ms"] < share_max * predicted["host"]["finish_ms"] else "host"
    return rule


def expected(share_max=0.57, certain=0.9, count_assumed=7, same=0.05, as_good=0.005):
    """What `auto` does, with other figures: see `gain.rs`. The risk of a split is taken to be all of its device's
    work."""
    def rule(predicted):
        fitting = [split for split in predicted if split != "host" and predicted[split]["fits"]]
        if not fitting:
            return "host"

        def finish(split):
            return predicted[split]["finish_ms"]
        best = min(map(finish, fitting))
        curse = expected_most(different(map(finish, fitting), same)) / expected_most(count_assumed)
        if best >= share_max ** (certain + (1 - certain) * min(curse, 1)) * finish("host"):
            return "host"
        as_good_ones = [split for split in fitting if finish(split) <= best * (1 + as_good)]
        return min(as_good_ones, key=lambda split: (predicted[split]["device_ms"], finish(split)))
    return rule


def different(finishes, same):
    count, least_one = 0, -math.inf
    for finish in sorted(finishes):
        if count == 0 or finish > least_one * (1 + same):
            count, least_one = count + 1, finish
    return count


def expected_most(count):
    return statistics.NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0


RULES = {"least, at most 0.57 of the host's": least(0.57), "least": least(1.0), "auto": expected(),
         "auto, ties by prediction": expected(as_good=0.0), "auto, ties within 10 %": expected(as_good=0.1)}
