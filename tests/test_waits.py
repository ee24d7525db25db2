"""Every wait in the rooms that others wait for has a bound, or says beside it why it needs none."""

import ast
from pathlib import Path

import pytest

FARM = Path(__file__).parent.parent / "farm"
MODULES = sorted(path for room in ("pool", "front", "store", "observe") for path in (FARM / room).glob("*.py"))
WITHOUT_ARGUMENTS = {"wait", "join", "acquire", "get", "communicate"}
"""Without one there is no bound."""
ALWAYS = {"recv", "recv_fds", "recvmsg", "sendall", "accept", "connect"}
REASON = "# no bound: "


def waits(source: str) -> list[int]:
    """The lines of calls that may wait for ever."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name, bare = node.func.attr, not node.args and not node.keywords
        for_ever = name in ALWAYS or (name in WITHOUT_ARGUMENTS and bare)
        if name == "waitpid" and isinstance(node.args[-1], ast.Constant) and node.args[-1].value == 0:
            for_ever = True
        if for_ever:
            found.append(node.lineno)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_a_wait_has_a_bound_or_a_reason(path: Path) -> None:
    lines = path.read_text().splitlines()
    bare = [
        number for number in waits(path.read_text()) if not any(REASON in lines[at] for at in (number - 1, number - 2))
    ]
    assert bare == []


def test_waits_are_found() -> None:
    source = "a.wait()\na.wait(1)\n','.join(b)\nd.get()\nd.get(1)\ns.recv(9)\nos.waitpid(p, 0)\nos.waitpid(p, W)\n"
    assert waits(source) == [1, 4, 6, 7]
    assert sum(len(waits(path.read_text())) for path in MODULES) > 10
