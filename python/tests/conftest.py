"""Tests learn nothing from each other: what sessions keep of programs lies in a folder of each test. Operations are small: one thread
is fastest, above all where other programs are busy."""

import pytest

try:
    import torch
except ImportError:  # tests of vectors do without
    pass
else:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _folder_of_its_own(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
