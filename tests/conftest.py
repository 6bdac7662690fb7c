"""What all tests share: `--bless` rewrites the expected text of golden tests, to be read in review, and the cache is an empty one."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile

import pytest

pytest.register_assert_rewrite("golden_runner")

# A shell that runs tests in the background ignores Ctrl-C for them; programs under test are to see it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Tests see nothing of the user's cache and leave nothing there. The workers of pytest-xdist share the cache of their parent."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.mkdtemp(prefix="tlc-tests-")
        os.environ["XDG_CACHE_HOME"] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="write what golden tests give as what they expect")


@pytest.fixture
def bless(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--bless"))
