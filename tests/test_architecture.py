"""The layout's rules, as tests: ranks of imports, who may touch what, sizes."""

import ast
from pathlib import Path

import pytest

FARM = Path(__file__).parent.parent / "farm"
TOOLS = FARM.parent / "tools"
MODULES = sorted(FARM.rglob("*.py")) + sorted(TOOLS.rglob("*.py"))
RANKS = [
    {"reasons", "errors", "config"},
    {"port"},
    {"job"},
    {"store", "observe"},
    {"pool"},
    {"front"},
    {"jit"},
    {"enable"},
    {"ahead"},
    {"testing"},
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
    if parts[0] == TOOLS.name:  # installed inside the package: see package-dir in pyproject.toml
        parts = (FARM.name, *parts)
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
    rooms = {room(module_name(path)) for path in MODULES}
    assert rooms - {"__init__", ""} == set().union(*RANKS)


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_a_module_imports_only_from_its_own_room_and_lower_ranks(path: Path) -> None:
    own = room(module_name(path))
    if not own:
        return
    for target in imports(path):
        if target.split(".")[0] != "farm" or target == "farm":
            assert target != "farm" or own == "tools", f"{path} imports the public package"
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
def test_only_tools_knows_the_command_line(path: Path) -> None:
    found = {target for target in imports(path) if target.split(".")[0] in {"click", "rich"}}
    assert not found or room(module_name(path)) == "tools", f"{path} imports {found}"


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_only_the_plugin_knows_pytest(path: Path) -> None:
    assert "pytest" not in imports(path) or module_name(path) == "farm.testing.plugin"


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_only_config_reads_the_environment(path: Path) -> None:
    text = path.read_text()
    if module_name(path) != "farm.config":
        assert "os.environ" not in text and "getenv" not in text, path


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_no_module_is_over_the_size_limit(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES_MAX, path


def test_every_package_is_installed() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no reader of TOML")
    settings = tomllib.loads((FARM.parent / "pyproject.toml").read_text())
    packages = {module_name(path) for path in MODULES if path.name == "__init__.py"}
    assert set(settings["tool"]["setuptools"]["packages"]) == packages
