"""The parts of `scripts/differences.py` and `scripts/changes.py`, in the order in which a statement passes them.

    trees       statements as trees, and the smaller trees that a tree shrinks to
    tables      the random tables that statements are over
    functions   what expressions are made of, and odd constants
    expressions random expressions
    grammar     random statements
    changes     random transactions that change the tables
    systems     PostgreSQL and Cleave, and what each answers
    outcomes    two answers compared: rows, types, errors
    known       differences that are documented, each with its reason
    reports     differences in order and counted
    self_test   checks of the pure parts
"""
