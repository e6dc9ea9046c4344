"""The digest of the code that a script depends on, so that a change of it reruns the script's rule and no other.

Digested are syntax trees without docstrings: a changed comment, docstring or layout changes nothing. Of a module only
those definitions count that the script reaches, so that a new option of figures does not repeat days of inference; the
frame (log, arguments, provenance) does not count at all. Nothing is imported, so this is cheap enough for every start
of Snakemake.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from deltap.files import digest

PACKAGE = Path(__file__).parent
_EVERYTHING = "*"
# The frame that every script stands in; it decides no number.
_FRAME = {
    "deltap",
    "deltap.cli",
    "deltap.code",
    "deltap.errors",
    "deltap.lock",
    "deltap.provenance",
    "deltap.ranks",
    "deltap.slurm",
}

Symbol = tuple[str, str]
"""A module of the package, such as ``deltap.files``, and a name that it defines."""


def code_digest(script: str | Path) -> str:
    """Return the digest of a script and of every definition in deltap that it reaches."""
    tree = _without_docstrings(ast.parse(Path(script).read_text(encoding="utf-8"), str(script)))
    nodes = list(ast.walk(tree))
    trees = {"": ast.dump(tree)}
    waiting = list(_symbols(nodes, _imports(nodes)))
    seen: set[Symbol] = set()
    while waiting:
        symbol = waiting.pop()
        if symbol not in seen and symbol[0] not in _FRAME:
            seen.add(symbol)
            definitions, imports = _module(symbol[0])
            # What stands outside of every definition runs with the import.
            for name in definitions if symbol[1] == _EVERYTHING else (symbol[1], ""):
                for index, (tree_digest, uses) in enumerate(_statements(symbol[0], name)):
                    trees[f"{symbol[0]}.{name}.{index}"] = tree_digest
                    waiting += uses
            # A name that a package's module took from another one.
            waiting += [imports[symbol[1]]] if symbol[1] in imports else []
    return digest(trees)


@cache
def _statements(module: str, name: str) -> list[tuple[str, list[Symbol]]]:
    """Return the digest of each statement that defines ``name`` ("" for none) in a module, and what it uses."""
    definitions, imports = _module(module)
    result = []
    for node in definitions.get(name, ()):
        nodes = list(ast.walk(node))  # walking is what takes the time
        names = sorted({inner.id for inner in nodes if isinstance(inner, ast.Name)})
        own = [(module, other) for other in names if other in definitions and other != name]
        # A digest, for most statements are reached from many scripts.
        result.append((digest(ast.dump(node)), [*_symbols(nodes, imports), *own]))
    return result


@cache
def _module(name: str) -> tuple[dict[str, list[ast.stmt]], dict[str, Symbol]]:
    """Return a module's top-level statements by the name that they define ("" for none), and what it imports."""
    path = PACKAGE.joinpath(*name.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = _without_docstrings(ast.parse(path.read_text(encoding="utf-8"), str(path)))
    definitions: dict[str, list[ast.stmt]] = {}
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names = [node.name]
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign() if _targets(node):
                names = _targets(node)
            case ast.Import() | ast.ImportFrom():
                names = []
            case _:
                names = [""]
        for target in names:
            definitions.setdefault(target, []).append(node)
    # Imports inside of functions and classes are found where those are read.
    outside = [node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return definitions, _imports(inner for node in outside for inner in ast.walk(node))


def _targets(node: ast.stmt) -> list[str]:
    return [inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)]


def _imports(nodes: Iterable[ast.AST]) -> dict[str, Symbol]:
    """Return what local names stand for, of those that are imported from deltap anywhere in ``nodes``."""
    found: dict[str, Symbol] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "deltap":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                whole = _is_module(inner)
                found[alias.asname or alias.name] = (inner, _EVERYTHING) if whole else (node.module, alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "deltap":
                    raise ValueError(f"write 'from deltap import …' instead of 'import {alias.name}'")
    return found


@cache
def _is_module(name: str) -> bool:
    return PACKAGE.joinpath(*name.split(".")[1:]).with_suffix(".py").is_file()


def _symbols(nodes: Sequence[ast.AST], imports: dict[str, Symbol]) -> Iterator[Symbol]:
    """Yield the imported symbols that ``nodes`` use; of a module used as ``module.name``, that name only."""
    imports = imports | _imports(nodes)
    attributes = {
        id(inner.value): inner.attr
        for inner in nodes
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name)
    }
    for inner in nodes:
        if isinstance(inner, ast.Name) and inner.id in imports:
            module, name = imports[inner.id]
            yield module, attributes.get(id(inner), name) if name == _EVERYTHING else name


def _without_docstrings(tree: ast.Module) -> ast.Module:
    """Remove docstrings, and the strings under attributes that document settings."""
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):  # statements stand nowhere else
            waiting += getattr(node, field, ())
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [
                statement
                for statement in node.body
                if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
            ]
    return tree
