"""What all tests share: `--bless` rewrites the expected text of golden tests, to be read in review."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("golden_runner")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="write what golden tests give as what they expect")


@pytest.fixture
def bless(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--bless"))
