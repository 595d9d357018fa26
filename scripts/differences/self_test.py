"""Checks of the pure parts: trees shrink, statements are the same for one seed, answers compare as they should."""

import random

from . import outcomes
from .grammar import Grammar
from .systems import Answer
from .trees import listed, node, optional, shrunk


def run():
    trees_shrink()
    one_seed_gives_the_same_statements()
    answers_compare()
    print("the self-test has passed")
    return 0


def trees_shrink():
    deep = node("e integer", "(", node("e integer", "(", node("e integer", "i"), " + ", node("e integer", "7"), ")"),
                " * ", node("e integer", "s"), ")")
    tree = node("query", "SELECT ", listed(", ", [node("item", deep), node("item", node("e text", "x"))]),
                " FROM t", optional(" WHERE ", node("e boolean", "t")))
    small = shrunk(tree, lambda variant: " + " in str(variant))
    assert str(small) == "SELECT (1 + 1) FROM t", small
    assert shrunk(tree, lambda variant: False) == tree
    asked = []
    shrunk(tree, lambda variant: asked.append(variant) is not None, tries=3)
    assert len(asked) == 3, asked


def one_seed_gives_the_same_statements():
    def some(seed):
        grammar = Grammar(random.Random(seed))
        return [str(grammar.statement()) for _ in range(200)]

    assert some(5) == some(5) and some(5) != some(6)
    assert all(text.count("(") == text.count(")") for text in some(5))


def answers_compare():
    def kind(expected, found, is_ordered=False):
        difference = outcomes.difference(expected, found, is_ordered)
        return difference and difference.kind

    def rows(type_name, *values):
        return Answer((type_name,), tuple((value,) for value in values))

    two = rows("integer", "1", "2")
    assert kind(two, rows("integer", "2", "1")) is None
    assert kind(two, rows("integer", "2", "1"), is_ordered=True) == "order"
    assert kind(two, rows("bigint", "1", "2")) == "type"
    assert kind(two, rows("integer", "1", None)) == "value"
    assert kind(rows("numeric", "1.50"), rows("numeric", "1.5")) is None
    assert kind(rows("numeric", "-86400.00"), rows("double precision", "-86400")) == "type"
    assert kind(rows("double precision", "0.1"), rows("double precision", "0.10000000000000002")) is None
    assert kind(rows("double precision", "0.1"), rows("double precision", "0.1001")) == "value"
    error, other = Answer(code="22012"), Answer(code="22003")
    assert kind(error, error) is None
    assert kind(error, other) == "code"
    assert kind(error, two) == "accepted"
    assert kind(two, error) == "refused"
    assert kind(error, Answer(code="XX000")) == "crash"
    assert kind(Answer(code="57014"), two) is None and kind(two, Answer(code="57014")) is None
