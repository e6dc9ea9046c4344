"""Which changes of code change the digest of a script."""

import shutil

import pytest

from deltap import code

SCRIPT = """
from deltap import tools
from deltap.method import measure
def main():
    from deltap.lazy import later
    return measure(tools.used()), later
"""
MODULES = {
    "__init__": "",
    "method": '"""Doc."""\nfrom deltap.constants import FACTOR\n'
    'def measure(x):\n    """Doc."""\n    return helper(x) * FACTOR\n'
    "def helper(x):\n    return x + 1  # why\ndef unused():\n    return 0\n",
    "constants": "FACTOR = 3\nOTHER = 4\n",
    "tools": "def used():\n    return 1\ndef unused():\n    return 2\n",
    "lazy": "later = 1\n",
    "apart": "x = 1\n",
}


@pytest.fixture
def digest_with(tmp_path, monkeypatch):
    """A function that returns the script's digest after replacing text in the package."""

    def digest(module="method", old="", new=""):
        shutil.rmtree(tmp_path / "deltap", ignore_errors=True)
        (tmp_path / "deltap").mkdir()
        for name, text in MODULES.items():
            assert name != module or old in text
            text = text.replace(old, new) if name == module and old else text
            (tmp_path / "deltap" / f"{name}.py").write_text(text)
        (tmp_path / "script.py").write_text(SCRIPT.replace(old, new) if module == "script" else SCRIPT)
        monkeypatch.setattr(code, "PACKAGE", tmp_path / "deltap")
        code._module.cache_clear()
        code._statements.cache_clear()
        return code.code_digest(tmp_path / "script.py")

    yield digest
    code._module.cache_clear()
    code._statements.cache_clear()


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("method", "# why", "# because"),
        ("method", "Doc.", "Documentation."),
        ("method", "def unused():\n    return 0", "def unused():\n    return 9"),
        ("constants", "OTHER = 4", "OTHER = 5"),
        ("tools", "return 2", "return 3"),
        ("apart", "x = 1", "x = 2"),
        ("method", "    return helper(x)", "\n    return  helper(x)"),
    ],
)
def test_what_does_not_matter_to_a_script(digest_with, module, old, new):
    assert digest_with(module, old, new) == digest_with()


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("script", "tools.used()", "tools.used() + 1"),
        ("method", "x + 1", "x + 2"),
        ("constants", "FACTOR = 3", "FACTOR = 4"),
        ("constants", "OTHER = 4", "OTHER = 4\nprint(OTHER)"),
        ("tools", "return 1", "return 5"),
        ("lazy", "later = 1", "later = 2"),
    ],
)
def test_what_matters_to_a_script(digest_with, module, old, new):
    assert digest_with(module, old, new) != digest_with()
