"""One run: what a run of update's has, without devices. A way is a name, its system and what measures it."""

import math

from update import run as update_run
from update.run import said

# Of each record, while it runs; the file has all figures.
SHOWN = ["total_s", "import_s", "first_s", "again_s", "first_paint_s", "interactive_s", "busy", "per_second"]


class Bench(update_run.Bench):
    """Everything that experiments share: `with Bench(options, folder, python) as run`."""

    program = "scripts/bench_people.py"

    def __init__(self, options, folder, python):
        super().__init__(options, None, folder)
        self.python, self.timing, self.answers = python, "unthrottled", {}

    def __enter__(self):
        self.begin()
        return self

    def rounds(self, experiment, case, ways):
        """Every way once a round, each round beginning with another one. `ways` are {name: (system, measure)}."""
        names = list(ways)
        for number in range(self.options.rounds):
            start = number % len(names)
            for name in names[start:] + names[:start]:
                system, measure = ways[name]
                figures = measure()
                for answer in figures.pop("answers", []):
                    self.agree(experiment, case, answer)
                self.add(experiment, case, name, system, number + 1, figures)

    def add(self, experiment, case, way, system, number, figures):
        self.records.append({"experiment": experiment, "case": case, "way": way, "system": system, "settings": {},
                             "round": number, **figures})
        shown = ", ".join(f"{name} {figures[name]:.4g}" for name in SHOWN if figures.get(name) is not None)
        print(f"    {said(case):36} {way:14} round {number}: {shown}", flush=True)

    def agree(self, experiment, case, answer):
        """Fails unless all ways and rounds of a case have the same answer."""
        wanted = self.answers.setdefault((experiment, said(case)), answer)
        if not is_same(wanted, answer):
            raise AssertionError(f"{experiment} ({said(case)}) gives {answer}, and gave {wanted} before")


def is_same(one, other):
    """Whether rows are the same, but for the order in which numbers were added."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return one == other
