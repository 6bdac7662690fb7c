"""The shape of the repository: who imports whom, and that the root is the package `tlc` and loads once."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# folder -> the folders of the package that it may import, its own aside
MAY_IMPORT = {
    "frontend": (),
    "ssa": ("frontend",),
    "opt": ("ssa", "frontend"),
    "regalloc": ("ssa", "frontend"),
    "tensor": ("opt", "ssa", "frontend"),
    "backends": ("tensor", "regalloc", "opt", "ssa", "frontend"),
    "driver": ("backends", "tensor", "regalloc", "opt", "ssa", "frontend"),
    "stdlib": (),
    "programs": (),
    "docs": (),
}


def python_files(folder: str) -> list[Path]:
    return sorted(path for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts)


def imported(path: Path) -> Iterator[str]:
    """The modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            base = node.module or ""
            yield from ([f"{base}.{alias.name}" for alias in node.names] if base == "tlc" else [base])


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_imports_point_down(folder: str) -> None:
    allowed = {folder, *MAY_IMPORT[folder]}
    wrong = []
    for path in python_files(folder):
        for name in imported(path):
            first, _, rest = name.partition(".")
            if first in MAY_IMPORT or (first == "tlc" and rest.partition(".")[0] not in allowed):
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert wrong == []


def test_dataclasses_are_the_compilers_own() -> None:
    """`frontend/records.py`: those of the standard library cost half a millisecond each whenever `tlc` starts."""
    own = ROOT / "frontend" / "records.py"
    standard = re.compile(r"^from dataclasses import .*\bdataclass\b|^import dataclasses", re.MULTILINE)
    files = (path for folder in MAY_IMPORT for path in python_files(folder) if path != own)
    assert [str(path.relative_to(ROOT)) for path in files if standard.search(path.read_text(encoding="utf-8"))] == []


def test_every_folder_with_code_is_in_the_table() -> None:
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert folders <= set(MAY_IMPORT)


def test_the_root_package_is_empty() -> None:
    assert (ROOT / "__init__.py").read_text() == ""


def packages() -> list[str]:
    """The package of every folder below the root that has Python code and belongs to the package."""
    found = [path.parent.relative_to(ROOT) for folder in MAY_IMPORT for path in (ROOT / folder).rglob("__init__.py")]
    return sorted(".".join(("tlc", *path.parts)) for path in found)


@pytest.mark.parametrize("package", packages())
def test_a_package_refuses_another_name(package: str) -> None:
    """A second copy, loaded as `frontend` and not `tlc.frontend`, would have classes of its own."""
    text = (ROOT / Path(*package.split(".")[1:]) / "__init__.py").read_text()
    assert f'assert __name__ == "{package}"' in text


def test_every_folder_of_code_is_a_package() -> None:
    bare = {path.parent for folder in MAY_IMPORT for path in python_files(folder) if not (path.parent / "__init__.py").exists()}
    data = {ROOT / "stdlib" / "mnist"}  # files and the script that made them
    assert bare - data == set()


def test_the_list_of_packages_is_complete() -> None:
    with open(ROOT / "pyproject.toml", "rb") as f:
        tools = tomllib.load(f)["tool"]
    assert sorted(tools["setuptools"]["packages"]) == ["tlc", *packages()]
    checked = set(tools["mypy"]["packages"])
    for folder in ("frontend", "ssa", "opt", "regalloc", "tensor", "backends", "driver"):
        assert f"tlc.{folder}" in checked or not [p for p in python_files(folder) if p.name != "__init__.py"]


def test_the_package_loads_once_from_here() -> None:
    code = "import sys, tlc.frontend.types as t; print(t.__file__); print([m for m in sys.modules if m.split('.')[0] == 'frontend'])"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT.parent, capture_output=True, text=True, check=True).stdout.splitlines()
    assert Path(out[0]).resolve() == ROOT / "frontend" / "types.py"
    assert out[1] == "[]"


def test_the_link_for_type_checkers() -> None:
    link = ROOT / ".typing" / "tlc"
    assert link.is_symlink()
    assert link.resolve() == ROOT
