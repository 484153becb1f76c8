"""What docstrings and documents show runs as it stands."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tiercel

ROOT = Path(__file__).parents[2]


def modules():
    return [name for _, name, _ in pkgutil.walk_packages(tiercel.__path__, "tiercel.") if not name.endswith("__main__")]


def test_docstrings():
    tried = 0
    for name in ["tiercel", *modules()]:
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            assert "tiercel" not in str(error), (name, error)
            continue
        found = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
        assert found.failed == 0, name
        tried += found.attempted
    assert tried >= 12, tried


def blocks(path):
    return re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(), re.S)


def test_the_estimate_of_the_document(tmp_path):
    """The block of docs/pytorch.md about estimates, as it stands."""
    if not (ROOT / "docs" / "pytorch.md").exists():
        pytest.skip("only the package is here")
    (block,) = [block for block in blocks("docs/pytorch.md") if "tiercel.estimate(make" in block]
    file = tmp_path / "block.py"
    # A smaller batch, so that it takes less time; everything else is what people read.
    file.write_text(block.replace("batch=64", "batch=2"))
    subprocess.run([sys.executable, str(file)], check=True, cwd=tmp_path, timeout=300)
    assert (tmp_path / "estimate.html").exists() and (tmp_path / "step.trace").exists()


def test_the_session_of_the_document(tmp_path, monkeypatch):
    """The block of docs/pytorch.md about sessions, with names that it takes for granted, on tensors of the processor."""
    if not (ROOT / "docs" / "pytorch.md").exists():
        pytest.skip("only the package is here")
    (block,) = [block for block in blocks("docs/pytorch.md") if "with tiercel.Session(" in block and "optimizer.step()" in block]
    monkeypatch.chdir(tmp_path)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(64, 64)

        def forward(self, batch):
            class Out:
                loss = self.inner(batch).square().mean()

            return Out

    torch.manual_seed(0)
    model = Model()
    names = {"tiercel": tiercel, "model": model, "optimizer": torch.optim.AdamW(model.parameters()), "batches": [torch.randn(1024, 64) for _ in range(6)]}
    original = tiercel.Session
    monkeypatch.setattr(tiercel, "Session", lambda fast, slow: original("4MiB", "64MiB", device="cpu", learned=False, seconds=0.3), raising=False)
    # A short training may end before its plan is made.
    exec(block.replace("    print(tiercel", "    s.wait_for_plan(30)\n    print(tiercel"), names)
    assert (tmp_path / "step.trace").read_text().startswith("tiercel-trace 1")


def test_types_are_told():
    """The package says that it has types, and the stub of what is written in Rust names all of that."""
    from tiercel import _tiercel

    folder = Path(tiercel.__file__).parent
    assert (folder / "py.typed").exists()
    stub = (folder / "_tiercel.pyi").read_text()
    told = set(re.findall(r"^(?:class|def) (\w+)", stub, re.M)) | set(re.findall(r"^(\w+): ", stub, re.M))
    there = {name for name in dir(_tiercel) if not name.startswith("__")} | {"__version__"}
    assert there == told, there ^ told
    for kind in ("Books", "Recording", "Followed", "Paths", "Slab"):
        part = stub.split(f"class {kind}:")[1].split("\nclass ")[0].split("\n#:")[0]
        methods = set(re.findall(r"    def (\w+)", part)) - {"__init__"}
        assert methods == {name for name in dir(getattr(_tiercel, kind)) if not name.startswith("_")}, kind


def test_public_names_have_types_and_a_sentence():
    import inspect

    for name in tiercel.__all__:
        thing = getattr(tiercel, name)
        if inspect.ismodule(thing) or isinstance(thing, str):
            continue
        assert inspect.getdoc(thing), name
        members = [m for n, m in inspect.getmembers(thing, inspect.isfunction) if not n.startswith("_")] if inspect.isclass(thing) else [thing]
        for member in members:
            if inspect.isbuiltin(member):
                continue
            assert inspect.getdoc(member), member
            assert "return" in member.__annotations__, member
