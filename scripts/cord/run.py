"""One measurement: what a run of update's has, over several devices."""

from update import run as update_run

from . import places
from .conditions import Fresh

# Those that compare with the nodes' own processors.
WITH_PROCESSORS = {"selectivity", "q6"}


def needs_processors(options):
    return not WITH_PROCESSORS.isdisjoint(options.experiments)


class Bench(update_run.Bench):
    """Everything that experiments share: `with Bench(options, psycopg, folder) as run`."""

    program = "scripts/bench_cord.py"

    def __init__(self, options, psycopg, folder):
        super().__init__(options, psycopg, folder)
        self.fresh, self.warm, self.rows_of = Fresh(), set(), {}

    def find_place(self):
        return places.of_options(self.options, needs_processors(self.options))

    def perform(self, name, experiment):
        super().perform(name, experiment)
        self.place.check_shares()

    def agree(self, query, found):
        """Fails unless a query gives as many rows in all ways."""
        if self.rows_of.setdefault(query, found) != found:
            raise AssertionError(f"{query} gives {found} rows, and gave {self.rows_of[query]} in another way")
