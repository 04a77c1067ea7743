"""Whether a test passes an argument to a callable, as its source says: the test's own, and that of what it uses of this folder
(helpers, fixtures, classes, constants, programs that it writes as text)."""

from __future__ import annotations

import ast
import functools
import textwrap
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent

Node = ast.AST
Definitions = dict[str, list[Node]]


def passes(module: str, test: str, names: frozenset[str], argument: str, position: int | None) -> bool | None:
    """Whether the test gives `argument` to one of `names` (by keyword, in a dict that is unpacked there, or as positional
    argument number `position`), or to something of its own that goes on to them; None where there is no such test."""
    defined = _definitions(module)
    if test not in defined:
        return None
    nodes = list(_used(defined, test))
    through = _through(nodes, names)
    unpacks = False
    for call in _calls(nodes):
        callee, arguments = _callee(call)
        if callee not in names and callee not in through:
            continue
        if any(keyword.arg == argument for keyword in call.keywords):
            return True
        unpacks |= any(keyword.arg is None for keyword in call.keywords)
        at = position if callee in names else _position_in(through[callee], argument, position)
        if at is not None and _plain(arguments) > at:
            return True
    return unpacks and any(isinstance(node, ast.Constant) and node.value == argument for node in nodes)


def passes_more(
    module: str, test: str, names: frozenset[str], known: frozenset[str], position: int | None
) -> bool | None:
    """The same for `*args`, which begin at `position`, or (None) for `**kwargs`, which are the keywords not in `known`."""
    defined = _definitions(module)
    if test not in defined:
        return None
    nodes = list(_used(defined, test))
    through = _through(nodes, names)
    for call in _calls(nodes):
        callee, arguments = _callee(call)
        if callee not in names and callee not in through:
            continue
        if position is None:
            if any(keyword.arg not in known for keyword in call.keywords):
                return True
        elif len(arguments) > position:
            return True
    return False


@functools.cache
def _definitions(module: str) -> Definitions:
    """What a file and its classes define, and what it imports from its neighbours, by name."""
    found: Definitions = {}
    tree = ast.parse((HERE / f"{module}.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for name in _targets(node):
                found.setdefault(name, []).append(node)
        elif isinstance(node, ast.ImportFrom) and (HERE / f"{node.module}.py").exists():
            for alias in node.names:
                for there in _definitions(node.module or "").get(alias.name, []):
                    found.setdefault(alias.asname or alias.name, []).append(there)
    for kind in tree.body:
        if isinstance(kind, ast.ClassDef):
            for node in kind.body:
                if isinstance(node, ast.FunctionDef):  # a test, or a fixture of such
                    found.setdefault(node.name, [node])
    return found


def _used(defined: Definitions, name: str) -> Iterator[Node]:
    """Every node of what is defined as `name`, of what that names in turn, and of programs in its texts."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for definition in defined.get(name, ()):
            for node in _with_programs(definition):
                yield node
                if isinstance(node, ast.Name):
                    waiting.append(node.id)
                elif isinstance(node, ast.arg):
                    waiting.append(node.arg)  # a fixture


def _with_programs(definition: Node) -> Iterator[Node]:
    for node in ast.walk(definition):
        yield node
        text = None
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "None" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        if text and "(" in text and ("\n" in text or "import" in text):
            try:
                program = ast.parse(textwrap.dedent(text))
            except SyntaxError:
                continue
            yield from ast.walk(program)


def _calls(nodes: list[Node]) -> Iterator[ast.Call]:
    return (node for node in nodes if isinstance(node, ast.Call))


def _callee(call: ast.Call) -> tuple[str | None, list[ast.expr]]:
    """What is called, by its last name, and with which positional arguments. A partial() is a call of what it is of, and what
    a call returns has the name of what was called."""
    function, arguments = call.func, call.args
    if _last_name(function) == "partial" and arguments:
        function, arguments = arguments[0], arguments[1:]
    while isinstance(function, ast.Call | ast.Subscript):
        function = function.func if isinstance(function, ast.Call) else function.value
    if isinstance(function, ast.Attribute) and _is_super(function.value):
        return None, arguments
    return _last_name(function), arguments


def _is_super(node: Node) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _last_name(node: Node) -> str | None:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None


def _plain(arguments: list[ast.expr]) -> int:
    """How many positional arguments there are for certain."""
    return next((i for i, each in enumerate(arguments) if isinstance(each, ast.Starred)), len(arguments))


def _targets(node: Node) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


def _through(nodes: list[Node], names: frozenset[str]) -> dict[str, Node]:
    """What of these nodes names one of `names`, itself or by what it names: functions, classes, variables, parameters."""
    pieces: list[tuple[list[str], Node, Node]] = []  # their names, where they may name others, and what they are
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            pieces.append(([node.name], node, node))
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            pieces.append((_targets(node), node.value, node))
        elif isinstance(node, ast.For | ast.comprehension):
            pieces.append(([name.id for name in ast.walk(node.target) if isinstance(name, ast.Name)], node.iter, node))
        elif (
            isinstance(node, ast.Call)
            and _last_name(node.func) == "parametrize"
            and isinstance(node.args[0], ast.Constant)
        ):
            pieces.append(([name.strip() for name in str(node.args[0].value).split(",")], node, node))
    found: dict[str, Node] = {}
    while True:
        before = len(found)
        for own, where, piece in pieces:
            if any(name not in found for name in own) and any(
                _last_name(n) in names or _last_name(n) in found for n in ast.walk(where)
            ):
                for name in own:
                    found.setdefault(name, piece)
        if len(found) == before:
            return found


def _position_in(piece: Node, argument: str, position: int | None) -> int | None:
    """Where something that goes on to the callable takes the argument."""
    if not isinstance(piece, ast.FunctionDef):
        return position
    own = [each.arg for each in piece.args.args]
    if argument in own:
        return own.index(argument)
    hands_on = any(isinstance(node, ast.arguments) and node.vararg is not None for node in ast.walk(piece))
    return position if hands_on else None
