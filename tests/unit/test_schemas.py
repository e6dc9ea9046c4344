"""The generated JSON Schemas are up to date, and the shipped configuration fits them."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_schemas_are_those_of_the_settings(tmp_path):
    subprocess.run([sys.executable, ROOT / "scripts" / "write_schemas.py", "--out", tmp_path], check=True)
    for path in (ROOT / "config" / "schemas").iterdir():
        assert path.read_text() == (tmp_path / path.name).read_text(), f"{path.name}: run 'make schemas'"
