"""The text of queries, for the scripts that take them apart or give them to peers."""

import re


def split_conjuncts(condition):
    """The parts of a condition between its outermost ANDs; the AND of BETWEEN and those in parentheses do not count."""
    parts, depth, between, current = [], 0, False, []
    for token in re.findall(r"'(?:[^']|'')*'|[A-Za-z_][\w.]*|\s+|.", condition, re.S):
        depth += {"(": 1, ")": -1}.get(token, 0)
        word = token.upper()
        between = between or (depth == 0 and word == "BETWEEN")
        if depth == 0 and word == "AND":
            if between:
                between = False
            else:
                parts.append("".join(current).strip())
                current = []
                continue
        current.append(token)
    parts.append("".join(current).strip().rstrip(";").strip())
    return parts


def for_duckdb(statement):
    """Renames the alias AT of one query of the Join Order Benchmark, which is a keyword in DuckDB."""
    return re.sub(r"\bat\.", '"at".', re.sub(r"\bAS at\b", 'AS "at"', statement))
