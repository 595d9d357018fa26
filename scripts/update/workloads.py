"""What clients do: the distribution of their keys, the operations of YCSB and of LinkBench, and when operations arrive.

Each operation is performed in a session and returns its kind: 0 for a read, 1 for an update.
"""

import threading
import time

LINK_TYPE = 123_456_789


class Zipf:
    """Numbers below `count`, the smaller ones likelier: number `i` in proportion to 1 / (i + 1)^theta.

    Source: Gray et al., "Quickly Generating Billion-Record Synthetic Databases", SIGMOD 1994.
    """

    def __init__(self, count, theta):
        self.count, self.theta = max(count, 1), theta
        self.zeta = zeta(self.count, theta)
        self.alpha = 1 / (1 - theta)
        beyond = 1 - zeta(min(self.count, 2), theta) / self.zeta
        self.eta = (1 - (2 / self.count) ** (1 - theta)) / beyond if beyond else 0.0

    def draw(self, chance):
        unit = chance.random()
        scaled = unit * self.zeta
        if scaled < 1:
            return 0
        if scaled < 1 + 0.5 ** self.theta:
            return min(1, self.count - 1)
        return min(int(self.count * (self.eta * unit - self.eta + 1) ** self.alpha), self.count - 1)


def zeta(count, theta):
    """The sum of i^-theta up to `count`: term by term, and the rest as an integral (Euler and Maclaurin)."""
    exact = min(count, 10_000)
    total = sum(i ** -theta for i in range(1, exact + 1))
    if count > exact:
        low, high = exact, count
        total += (high ** (1 - theta) - low ** (1 - theta)) / (1 - theta) + (high ** -theta - low ** -theta) / 2
    return total


def scatter(number, count):
    """Another number below `count`, so that likely ones lie all over the keys."""
    return (number * 0x9E3779B97F4A7C15 >> 7) % count


class Ycsb:
    """Point reads and point updates of the YCSB table.

    With `reads_first` an update is a transaction that has read the record before, so at REPEATABLE READ it fails if
    another has changed it since. `common` is the chance that a key is one of those that the update beside the clients
    changes too: those below `updated_below` modulo 1000. Without it, keys are drawn from all.
    """

    def __init__(self, task):
        self.keys, self.read_share = task["keys"], task["read_share"]
        self.common, self.below = task.get("common"), task.get("updated_below", 0)
        self.reads_first = task.get("reads_first", False)
        self.zipf = Zipf(self.keys, task["theta"])
        # Integers are counted up, so that a lost change shows.
        self.is_wide = task["width"] == "wide"
        value = "%s" if self.is_wide else "field2 + 1"
        self.change = f"UPDATE usertable SET field2 = {value} WHERE ycsb_key = %s"

    def key(self, chance):
        key = 1 + scatter(self.zipf.draw(chance), self.keys)
        if self.common is None:
            return key
        low, high = (0, self.below) if chance.random() < self.common else (self.below, 1000)
        # The same thousand, and within it on the side that was drawn; the last thousand may be cut short.
        key = key // 1000 * 1000 + low + key % 1000 * (high - low) // 1000
        return key if 1 <= key <= self.keys else max(1, low)

    def perform(self, session, chance):
        key = self.key(chance)
        if chance.random() < self.read_share:
            self.read(session, key)
            return 0
        values = [f"{chance.random():.18f}" * 5, key] if self.is_wide else [key]
        if self.reads_first:
            with session.transaction():
                self.read(session, key)
                session.execute(self.change, values, prepare=True)
        else:
            session.execute(self.change, values, prepare=True)
        return 1

    @staticmethod
    def read(session, key):
        session.execute("SELECT * FROM usertable WHERE ycsb_key = %s", [key], prepare=True).fetchall()


class LinkBench:
    """LinkBench's common operations over the tables of `cleave bench linkbench`, in its shares.

    Gets links 52 %, a node 13 %, a count 5 %; adds or changes a link with its count 17 %, updates a node 8 %, hides a
    link 3 %, adds a node 2 %.
    """

    def __init__(self, task):
        self.nodes, self.zipf = task["keys"], Zipf(task["keys"], task["theta"])
        self.first_new = task["first_new"]
        self.guard = threading.Lock()

    def node(self, chance):
        return 1 + scatter(self.zipf.draw(chance), self.nodes)

    def perform(self, session, chance):
        dice = chance.random()
        run = lambda text, *values: session.execute(text, values, prepare=True)
        if dice < 0.52:
            run("SELECT id1, id2, link_type, visibility, data, time, version FROM linktable WHERE id1 = %s AND "
                "link_type = %s AND visibility = 1 ORDER BY time DESC LIMIT 100", self.node(chance),
                LINK_TYPE).fetchall()
            return 0
        if dice < 0.65:
            run("SELECT id, type, version, time, data FROM nodetable WHERE id = %s", self.node(chance)).fetchall()
            return 0
        if dice < 0.70:
            run("SELECT count FROM counttable WHERE id = %s AND link_type = %s", self.node(chance),
                LINK_TYPE).fetchall()
            return 0
        if dice < 0.87:
            self.change_link(session, run, chance, self.node(chance), self.node(chance), 1)
        elif dice < 0.90:
            self.change_link(session, run, chance, self.node(chance), self.node(chance), 0)
        elif dice < 0.98:
            run("UPDATE nodetable SET version = version + 1, data = %s WHERE id = %s", f"{chance.random():.16f}" * 6,
                self.node(chance))
        else:
            with self.guard:
                self.first_new += 1
                new = self.first_new
            run("INSERT INTO nodetable VALUES (%s, 2048, 0, 0, %s)", new, f"{chance.random():.16f}" * 6)
        return 1

    @staticmethod
    def change_link(session, run, chance, source, target, visible):
        with session.transaction():
            # The count first: other clients that change a link of the node wait here.
            run("UPDATE counttable SET version = version + 1 WHERE id = %s AND link_type = %s", source, LINK_TYPE)
            found = run("SELECT visibility FROM linktable WHERE link_type = %s AND id1 = %s AND id2 = %s", LINK_TYPE,
                        source, target).fetchone()
            if found is None and visible:
                run("INSERT INTO linktable VALUES (%s, %s, %s, 1, %s, %s, 0)", source, target, LINK_TYPE, "new link",
                    chance.randrange(1_000_000))
            elif found is not None:
                run("UPDATE linktable SET visibility = %s, version = version + 1 WHERE link_type = %s AND id1 = %s AND "
                    "id2 = %s", visible, LINK_TYPE, source, target)
            before = found[0] if found else 0
            if visible != before and (found is not None or visible):
                run("UPDATE counttable SET count = count + %s WHERE id = %s AND link_type = %s", visible - before,
                    source, LINK_TYPE)


WORKLOADS = {"ycsb": Ycsb, "linkbench": LinkBench}


class Arrivals:
    """Operations that arrive at a rate, whichever client is free for them; without a rate, as soon as one is."""

    def __init__(self, rate, is_over):
        self.rate, self.is_over = rate, is_over
        self.began, self.count, self.guard = 0, 0, threading.Lock()

    def next(self):
        """When the next operation begins, in nanoseconds; None at the end."""
        if not self.rate:
            return time.monotonic_ns()
        with self.guard:
            at = self.began + int(self.count * 1e9 / self.rate)
            self.count += 1
        wait = at - time.monotonic_ns()
        if wait > 0 and self.is_over.wait(wait / 1e9):
            return None
        return at
