import os
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as profiles

sys.path.insert(0, str(Path(__file__).parent))

ROOT = Path(__file__).parents[1]

# Seconds by default; ``make soak`` chooses the long profile. Tests that set their own number of examples keep it.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
profiles.register_profile("short", max_examples=40, **_COMMON)
profiles.register_profile("soak", max_examples=1000, **_COMMON)
profiles.load_profile(os.environ.get("DELTAP_HYPOTHESIS", "short"))


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


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory):
    """Every stage's files, of a tiny model; tests that change them take a copy."""
    import stages

    return stages.all_stages(tmp_path_factory.mktemp("stages"))


@pytest.fixture(scope="session")
def browser():
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("needs chromium and chromedriver (Debian: apt-get install chromium chromium-driver)")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1300,800"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    yield driver
    driver.quit()
