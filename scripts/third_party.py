#!/usr/bin/env python3
"""Lists the libraries that a program links, with their licences and the texts of these: for packages.

    cargo metadata --locked --format-version 1 --filter-platform TARGET | scripts/third_party.py PACKAGE

A text that several libraries have in common is printed once. A library without a licence is an error.
"""

import json
import pathlib
import sys

BEGINNINGS = ("license", "licence", "copying", "notice", "unlicense", "copyright")


def linked(metadata, name):
    """The ids of what is linked into the package `name`, without what only tests and build scripts need."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    waiting = [one for one in metadata["workspace_members"] if packages[one]["name"] == name]
    if not waiting:
        sys.exit(f"third_party.py: no package {name}")
    found = set(waiting)
    while waiting:
        for dependency in nodes[waiting.pop()]["deps"]:
            is_linked = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if is_linked and dependency["pkg"] not in found:
                found.add(dependency["pkg"])
                waiting.append(dependency["pkg"])
    others = [packages[one] for one in found if packages[one]["source"] is not None]
    return sorted(others, key=lambda package: (package["name"], package["version"]))


def texts(package):
    """The texts of licences that lie beside the package's manifest."""
    folder = pathlib.Path(package["manifest_path"]).parent
    files = sorted(file for file in folder.iterdir() if file.name.lower().startswith(BEGINNINGS) and file.is_file())
    return [file.read_text(encoding="utf-8", errors="replace").strip() for file in files]


def main():
    metadata = json.load(sys.stdin)
    users = {}
    for package in linked(metadata, sys.argv[1]):
        title = f"{package['name']} {package['version']}"
        licence = package["license"] or package["license_file"]
        if not licence:
            sys.exit(f"third_party.py: {title} has no licence")
        print(f"{title}: {licence}")
        for text in texts(package):
            users.setdefault(text, []).append(title)
    for text, titles in users.items():
        print("\n" + "-" * 80 + "\n" + ", ".join(dict.fromkeys(titles)) + ":\n\n" + text)


if __name__ == "__main__":
    main()
