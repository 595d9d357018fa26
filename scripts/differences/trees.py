"""Statements as trees: a random choice in, its text and its smaller variants out.

A node has a kind. A node may be replaced by any node of the same kind below it, by the plainest text of its kind, or,
if it is optional, by nothing; an item of a list may be left out. So a statement that two systems answer differently
shrinks to the few words that matter.
"""

from dataclasses import dataclass, replace

# Nodes of these kinds shrink to these texts.
PLAIN = {}


@dataclass(frozen=True)
class Node:
    """`parts` are texts and nodes, joined by `separator`. Of a list, with `least` items at least, items may be left
    out."""

    kind: str
    parts: tuple
    separator: str = ""
    least: int | None = None
    is_optional: bool = False

    def __str__(self):
        return self.separator.join(str(part) for part in self.parts)

    def size(self):
        return 1 + sum(part.size() for part in self.parts if isinstance(part, Node))


def node(kind, *parts):
    return Node(kind, parts)


def optional(*parts):
    """A clause that may be left out."""
    return Node("clause", parts, is_optional=True)


def listed(separator, items, least=1):
    return Node("list", tuple(items), separator, least)


def smaller(tree):
    """Trees that are smaller than `tree`, those that lose most first."""
    found = [(tree.size() - variant.size(), variant) for variant in variants(tree)]
    found.sort(key=lambda pair: -pair[0])
    seen = {str(tree)}
    for _, variant in found:
        text = str(variant)
        if text not in seen:
            seen.add(text)
            yield variant


def variants(tree):
    """`tree` with one of its nodes made smaller."""
    plain = PLAIN.get(tree.kind)
    if plain is not None and str(tree) != plain:
        yield node(tree.kind, plain)
    for below in descendants(tree):
        if below.kind == tree.kind:
            yield replace(below, is_optional=tree.is_optional)
    if tree.least is not None and len(tree.parts) > tree.least:
        for place in range(len(tree.parts)):
            yield replace(tree, parts=tree.parts[:place] + tree.parts[place + 1:])
    for place, part in enumerate(tree.parts):
        if not isinstance(part, Node):
            continue
        around = tree.parts[:place], tree.parts[place + 1:]
        if part.is_optional and part.parts:
            yield replace(tree, parts=(*around[0], replace(part, parts=()), *around[1]))
        for variant in variants(part):
            yield replace(tree, parts=(*around[0], variant, *around[1]))


def descendants(tree):
    for part in tree.parts:
        if isinstance(part, Node):
            yield part
            yield from descendants(part)


def shrunk(tree, is_same, tries=400, variants_of=smaller):
    """The smallest tree for which `is_same`, found greedily with up to so many questions. `variants_of` gives those
    that are smaller than one."""
    while tries > 0:
        for variant in variants_of(tree):
            tries -= 1
            if is_same(variant):
                tree = variant
                break
            if tries <= 0:
                return tree
        else:
            return tree
    return tree
