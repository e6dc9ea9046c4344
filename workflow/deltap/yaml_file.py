"""YAML files that people write: loaded safely, and refused where YAML would silently understand something else."""

import re
from pathlib import Path
from typing import Any

import yaml

from deltap.errors import DeltapError

_NODES = 100_000  # with every use of an anchor counted; no configuration comes near
# 010 is eight and 1:30 is ninety in YAML 1.1.
_SURPRISING = re.compile(r"[-+]?0[0-9_]+|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")


def read_yaml(path: Path) -> Any:
    """Return what a YAML file holds: mappings, lists, texts, numbers, truth values, dates and None.

    Raises DeltapError that names file and line where it cannot be read, has a key twice, a tag other than YAML's own, a
    number that YAML reads in base 8 or 60, or anchors that contain themselves or make it enormous.
    """
    try:
        # Bytes, so that PyYAML decodes them and refuses what is no Unicode.
        loader = _Loader(path.read_bytes())
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _check_size(node)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        what = " ".join(filter(None, (error.context, error.problem)))
        hint = "; indent with blanks, not with tabs" if "\\t" in what else ""
        raise DeltapError(f"{path}{line}: {what}{hint}") from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise DeltapError(f"{path}: cannot be read: {' '.join(str(error).split())}") from None


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if (key.tag, key.value) in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {key.value!r} stands there twice", problem_mark=key.start_mark
                    )
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: Any) -> Any:
        value = super().construct_scalar(node)
        number = node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
        if number and _SURPRISING.fullmatch(value):
            raise yaml.MarkedYAMLError(
                problem=f"YAML does not read {value} as it is written; quote a text, or write the number in base 10",
                problem_mark=node.start_mark,
            )
        return value


def _check_size(node: yaml.Node) -> None:
    """Raise where anchors contain themselves or multiply without end: a few lines can stand for gigabytes."""
    waiting, number = [node], 0
    while waiting:
        here = waiting.pop()
        number += 1
        if number > _NODES:
            raise yaml.MarkedYAMLError(
                problem="too many values, or an anchor that contains itself", problem_mark=node.start_mark
            )
        if isinstance(here, yaml.MappingNode):
            waiting += [inner for pair in here.value for inner in pair]
        elif isinstance(here, yaml.SequenceNode):
            waiting += here.value
