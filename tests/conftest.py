import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real question sets, beside the checkout where there are any."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real question sets at {folder}")
    return folder


@pytest.fixture(scope="session")
def tokenizer():
    import tiny

    return tiny.tokenizer()
