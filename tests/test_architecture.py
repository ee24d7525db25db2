"""The layout's rules, as tests: ranks of imports, who may touch what, sizes."""

import ast
from pathlib import Path

import pytest

FARM = Path(__file__).parent.parent / "farm"
MODULES = sorted(FARM.rglob("*.py"))
RANKS = [
    {"reasons", "errors", "config"},
    {"port"},
    {"job"},
    {"store", "observe"},
    {"pool"},
    {"front"},
    {"jit"},
    {"enable"},
    {"tools"},
]
LINES_MAX = 500


def room(module: str) -> str:
    """`farm.store.disk` -> `store`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def rank(name: str) -> int:
    return next(i for i, names in enumerate(RANKS) if name in names)


def module_name(path: Path) -> str:
    parts = path.relative_to(FARM.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
    return found


def test_there_are_modules_to_check() -> None:
    assert len(MODULES) > 5


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_a_module_imports_only_from_its_own_room_and_lower_ranks(path: Path) -> None:
    own = room(module_name(path))
    if not own:
        return
    for target in imports(path):
        if target.split(".")[0] != "farm" or target == "farm":
            assert target != "farm", f"{path} imports the public package"
            continue
        other = room(target)
        assert other == own or rank(other) < rank(own) or rank(own) == rank(other) == 0, f"{path} imports {target}"


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_only_port_touches_private_parts_of_numba(path: Path) -> None:
    if room(module_name(path)) == "port":
        return
    private = {t for t in imports(path) if t.split(".")[0] in {"numba", "llvmlite"} and t not in {"numba"}}
    assert not private, f"{path} imports {private}"


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_only_config_reads_the_environment(path: Path) -> None:
    text = path.read_text()
    if module_name(path) != "farm.config":
        assert "os.environ" not in text and "getenv" not in text, path


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_no_module_is_over_the_size_limit(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES_MAX, path
