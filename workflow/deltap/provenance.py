"""What made a file: the digest of the code, the versions of the libraries, and the settings."""

import ast
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from deltap import __version__
from deltap.files import digest

PACKAGE = Path(__file__).parent
# The libraries that numbers may depend on.
_LIBRARIES = (
    "numpy",
    "pyarrow",
    "safetensors",
    "scikit-learn",
    "scipy",
    "tokenizers",
    "torch",
    "transformers",
)


@cache
def code_digest(script: str | Path) -> str:
    """Return the digest of a script and of every deltap module it imports, directly or not.

    Digested are the syntax trees without docstrings: a changed comment, docstring or layout changes nothing. Nothing
    is imported, so this is cheap enough for every start of Snakemake.
    """
    trees: dict[str, str] = {}
    waiting = [Path(script)]
    while waiting:
        path = waiting.pop()
        name = path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else path.name
        if name not in trees:
            tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
            waiting += _imported(tree)
            trees[name] = ast.dump(_without_docstrings(tree))
    return digest(trees)


def _imported(tree: ast.Module) -> list[Path]:
    """Return the files of the deltap modules that ``tree`` imports, at any depth of its code."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    paths = []
    for name in sorted(names):
        if name == "deltap" or name.startswith("deltap."):
            path = PACKAGE.joinpath(*name.split(".")[1:])
            paths += [file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()]
    return paths


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            # Also the strings under attributes, which document settings.
            node.body = [
                statement
                for statement in node.body
                if not (
                    isinstance(statement, ast.Expr)
                    and isinstance(statement.value, ast.Constant)
                    and isinstance(statement.value.value, str)
                )
            ]
    return tree


@cache
def versions() -> dict[str, str]:
    """Return the versions of the libraries that numbers may depend on, without local build tags."""
    return {name: version(name).split("+")[0] for name in _LIBRARIES}


def provenance(script: str | Path, settings: Any, **facts: Any) -> dict[str, Any]:
    """Return what made a file: stage, code digest, settings and their digest, versions, and further ``facts``.

    Only what decides the content belongs here; host, time and job id are in the job's side file (`deltap.cli`).
    """
    return {
        "stage": Path(script).stem,
        "deltap": __version__,
        "code": code_digest(script),
        "settings": settings,
        "settings_digest": digest(settings),
        "versions": versions(),
        **facts,
    }
