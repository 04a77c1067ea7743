#!/usr/bin/env python3
"""Reads every import of the Python package and fails on a circle: of modules, or of the packages of python/shoal.

    check_imports.py [repository root]

An import counts wherever it stands, in a function as well as at the top of a file, and so does importlib.import_module():
of a module that calls it, each string counts that is, or may become, the dotted name of a module of ours. What stands
under `if TYPE_CHECKING:` does not count. Nor do the packages around an imported module, which Python imports before it:
`import shoal.vector.make` depends on that file, whatever the faces `shoal` and `shoal.vector` offer besides.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from report import run

Graph = dict[str, dict[str, str]]
"""Of each module what it imports, and where: "python/shoal/x.py:12"."""


def modules(python: Path) -> dict[str, Path]:
    """The modules of the package `shoal` in the folder `python`, with the stubs of those that are written in C++."""
    found = {}
    for path in sorted([*python.glob("shoal/**/*.py"), *python.glob("shoal/**/*.pyi")]):
        parts = path.relative_to(python).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def nodes_that_run(node: ast.AST) -> Iterator[ast.AST]:
    """All of the tree but what is for type checkers alone, and the parts of an f-string."""
    yield node
    if isinstance(node, ast.JoinedStr):
        return
    inner: Iterator[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.If) and getattr(node.test, "id", getattr(node.test, "attr", "")) == "TYPE_CHECKING":
        inner = iter(node.orelse)
    for child in inner:
        yield from nodes_that_run(child)


def imports(name: str, is_package: bool, tree: ast.Module, known: dict[str, Path]) -> Iterator[tuple[str, int]]:
    """The modules of ours that the module `name` imports, each with a line."""
    nodes = list(nodes_that_run(tree))
    by_name = any(isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__") for node in nodes)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = name.split(".") if is_package else name.split(".")[:-1]
                base = ".".join([*parts[: len(parts) - node.level + 1], *([base] if base else [])])
            for alias in node.names:
                target = f"{base}.{alias.name}"
                target = target if target in known else base
                if target in known:
                    yield target, node.lineno
        elif by_name and isinstance(node, ast.Constant) and isinstance(node.value, str):
            if "." in node.value and node.value in known:
                yield node.value, node.lineno
        elif by_name and isinstance(node, ast.JoinedStr):
            pattern = _pattern(node, name)
            yield from ((other, node.lineno) for other in known if re.fullmatch(pattern, other))


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _pattern(text: ast.JoinedStr, name: str) -> str:
    """Of the names of modules that an f-string in the module `name` may become."""
    pattern = ""
    for part in text.values:
        if isinstance(part, ast.Constant):
            pattern += re.escape(str(part.value))
        elif isinstance(part, ast.FormattedValue) and getattr(part.value, "id", "") == "__name__":
            pattern += re.escape(name)
        else:
            pattern += r"\w+"
    return pattern if pattern.startswith("shoal") else r"\Z."


def read(root: Path) -> Graph:
    known = modules(root / "python")
    graph: Graph = {}
    for name, path in known.items():
        found = graph.setdefault(name, {})
        if path.suffix == ".py":
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for target, line in imports(name, path.name == "__init__.py", tree, known):
                if target != name:
                    found.setdefault(target, f"{path.relative_to(root)}:{line}")
    return graph


def of_packages(graph: Graph) -> Graph:
    """The same of the packages and single modules in python/shoal, without the face of the whole."""
    packages: Graph = {}
    for name, targets in graph.items():
        for target, where in targets.items():
            one, other = _package(name), _package(target)
            if one and other and one != other:
                packages.setdefault(one, {}).setdefault(other, where)
                packages.setdefault(other, {})
    return packages


def _package(name: str) -> str:
    return ".".join(name.split(".")[:2]) if "." in name else ""


def circles(graph: Graph) -> list[str]:
    """A line for each knot of names that import each other: all of them, and a shortest way around."""
    reached = {name: set(_way(graph, name)) for name in graph}
    knots = {
        frozenset(other for other in reached[name] if name in reached[other]) for name in graph if name in reached[name]
    }
    lines = []
    for knot in sorted(knots, key=sorted):
        way = min((_way(graph, name)[name] for name in sorted(knot)), key=len)
        steps = [f"{one} -> {other} ({graph[one][other]})" for one, other in zip(way, way[1:], strict=False)]
        lines.append(f"{len(knot)} import each other: {', '.join(sorted(knot))}\n  " + "\n  ".join(steps))
    return lines


def _way(graph: Graph, start: str) -> dict[str, list[str]]:
    """A shortest way from `start` to each name that it leads to, itself among them where it leads back."""
    found: dict[str, list[str]] = {}
    waiting = deque([[start]])
    while waiting:
        way = waiting.popleft()
        for target in graph[way[-1]]:
            if target not in found:
                found[target] = [*way, target]
                waiting.append(found[target])
    return found


def check(root: Path) -> tuple[int, list[str]]:
    """How many modules were read, and the circles among them and among their packages."""
    graph = read(root)
    return len(graph), [
        *(f"modules: {line}" for line in circles(graph)),
        *(f"packages: {line}" for line in circles(of_packages(graph))),
    ]


if __name__ == "__main__":
    sys.exit(run(check, sys.argv, "modules", "circles"))
