"""Some models of the zoo; `python -m tiercel.bench.zoo` goes through all of them."""

import pytest

from tiercel.bench import zoo


@pytest.mark.parametrize("name", ["gpt2", "bert", "mixtral", "vit", "resnet18", "squeezenet"])
def test_eager(name):
    pytest.importorskip("torchvision" if zoo.ZOO[name].__qualname__.startswith("_picture") else "transformers")
    rows = zoo.run(name, [0.5], 3)
    assert [row["verdict"] for row in rows] == ["same bits"], rows
    assert all(row["used"] <= row["limit"] and row["moved"] > 0 for row in rows)


def test_compiled():
    pytest.importorskip("transformers")
    rows = zoo.run("gpt2", [0.6], 3, True)
    assert [row["verdict"] for row in rows] == ["equal to rounding"], rows
