"""Conditions that no earlier one has answered, for experiments of what is kept of them. Pure; `self_test` checks them.

A device keeps which rows a condition was true for, also for conditions that imply it. So a round would find what the
round before it has left. Here each condition is `column > c` with a smaller c than all before it on its column, by so
little that no measured share changes: it implies none of them, and they say nothing of its rows.
"""

STEP = 1e-6
# About 1 % of the particles each.
BASES = {"ke": 0.424, "ux": 0.346, "uy": 0.346, "uz": 0.346}
# About 0.3 %: what is above these is above the bases too.
NARROWER = {"ux": 0.7, "uy": 0.7}
PLACES = ["x", "y", "z", "id"]
GRADES = ["disjoint", "half", "implied", "same"]
SETS = {"neither": (False, False), "reuse": (True, False), "nodes": (False, True), "both": (True, True)}


class Fresh:
    """Gives such conditions."""

    def __init__(self):
        self.given = 0

    def above(self, column, bases=None):
        """`column > c`."""
        self.given += 1
        return f"{column} > {(bases or BASES)[column] - STEP * self.given:.7f}"

    def pair(self, grade):
        """Two conditions, each of two parts, of which the second one repeats none, half or all, or implies all."""
        shared = self.above("ux")
        first = f"{shared} AND {self.above('uy')}"
        if grade == "same":
            return first, first
        if grade == "half":
            return first, f"{shared} AND {self.above('uz')}"
        if grade == "implied":
            return first, f"{self.above('ux', NARROWER)} AND {self.above('uy', NARROWER)}"
        return first, f"{self.above('uz')} AND {self.above('ke')}"

    def batch(self, kind, whole, halves):
        """One query of each filter column: [(table, what it selects, its condition)]. `whole` is a table over all
        nodes, `halves` are tables over one node each."""
        reuses, is_of_nodes = SETS[kind]
        found = []
        for number, column in enumerate(BASES):
            table = halves[number % len(halves)] if is_of_nodes else whole
            found.append((table, PLACES[0 if reuses else number], self.above("ke" if reuses else column)))
        return found
