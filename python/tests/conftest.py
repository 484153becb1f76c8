"""Tests learn nothing from each other: what sessions keep of programs lies in a folder of each test."""

import pytest


@pytest.fixture(autouse=True)
def _folder_of_its_own(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
