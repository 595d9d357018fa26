"""Differences that stay, each with its reason; all are listed in docs/reference/sql.md.

A rule is the kinds of difference it covers, a pattern of the shrunk statement, of PostgreSQL's answer and of Cleave's.
"""

import re

RULES = [
]


def reason(kind, sql, expected, found):
    """Why this difference stays; None if nobody knows it."""
    for kinds, statement, of_postgresql, of_cleave, why in RULES:
        if kind in kinds and re.search(statement, sql) and re.search(of_postgresql, expected) \
                and re.search(of_cleave, found):
            return why
    return None
