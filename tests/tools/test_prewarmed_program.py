"""From a recorded run to a store in which nothing has to be compiled, with real processes; and killed on the way."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from shop_program import write_program

FARM = Path(sys.executable).with_name("farm")
NOBODY = 65534
SHOP = 10
"""Functions with signatures that the program asks for."""


def environment(cache: Path) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("FARM_")}
    return {**own, "FARM_CACHE_DIR": str(cache), "FARM_WORKERS": "2", "PYTHONDONTWRITEBYTECODE": "1"}


def farm(*words: object, cache: Path, cwd: Path, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*before, str(FARM), *map(str, words)]
    return subprocess.run(command, env=environment(cache), cwd=cwd, capture_output=True, text=True, timeout=100)


@dataclass(frozen=True)
class Recorded:
    folder: Path
    manifest: Path
    output: str


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The program, and what one run of it has written down."""
    folder = tmp_path_factory.mktemp("shop")
    write_program(folder)
    done = farm("run", "--record", "m.jsonl", "program.py", cache=folder / "first", cwd=folder)
    assert done.returncode == 0, done.stderr
    return Recorded(folder, folder / "m.jsonl", done.stdout)


@pytest.fixture(scope="module")
def filled(recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that only a prewarm has written to."""
    cache = tmp_path_factory.mktemp("filled") / "cache"
    done = farm("prewarm", recorded.manifest, "--script", "program.py", cache=cache, cwd=recorded.folder)
    assert done.returncode == 0, done.stderr + done.stdout
    assert f"{SHOP} compiled\n" in done.stdout
    assert f"[{SHOP}/{SHOP}" in done.stderr and "compiled" in done.stderr
    return cache


def copied(recorded: Recorded, folder: Path) -> Path:
    """The program at another place, every file of it touched."""
    target = folder / "elsewhere" / "deep"
    target.mkdir(parents=True)
    for name in ("program.py", "shop", "m.jsonl"):
        source = recorded.folder / name
        shutil.copytree(source, target / name) if source.is_dir() else shutil.copy(source, target / name)
    for number, path in enumerate(sorted(target.rglob("*"))):
        os.utime(path, (1e9 + number, 1e9 + number))
    return target


def test_the_manifest_has_no_path_and_each_entry_can_be_asked_for(recorded: Recorded) -> None:
    text = recorded.manifest.read_text()
    assert str(recorded.folder) not in text and "reason" not in text
    assert text.count("\n") == SHOP + 1


@pytest.mark.timeout(200)
def test_what_was_prewarmed_is_not_compiled_again_by_a_copy_of_the_program_of_another_user(
    recorded: Recorded, filled: Path, tmp_path: Path
) -> None:
    setpriv, before = shutil.which("setpriv"), ()
    store = tmp_path / "cache"
    shutil.copytree(filled, store)
    target = copied(recorded, tmp_path)
    if os.getuid() == 0 and setpriv is not None:
        # May read everything, as Python itself may lie in root's home; it owns what it is given, and nothing else.
        allowed = "+dac_read_search"
        who = (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        before = (setpriv, *who, f"--inh-caps={allowed}", f"--ambient-caps={allowed}")
        for path in (store, *store.rglob("*"), target, *target.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    done = farm("run", "--record", "again.jsonl", "program.py", cache=store, cwd=target, before=before)
    assert (done.returncode, done.stdout) == (0, recorded.output), done.stderr
    # Fewer, as what machine code calls is not asked for by Python; and the same lines, at another place.
    again = set((target / "again.jsonl").read_text().splitlines())
    assert len(again) > 5 and again <= set(recorded.manifest.read_text().splitlines())
    assert "compiled 0, " in done.stderr and ", local 0\n" in done.stderr and "loaded 0" not in done.stderr
    check = ("prewarm", "m.jsonl", "--script", "program.py", "--check")
    checked = farm(*check, cache=store, cwd=target, before=before)
    assert checked.returncode == 0 and f"{SHOP} in the store already\n" in checked.stdout, checked.stderr


def test_an_edited_function_is_what_check_finds(recorded: Recorded, filled: Path, tmp_path: Path) -> None:
    target = copied(recorded, tmp_path)
    program = (target / "program.py").read_text()
    (target / "program.py").write_text(program.replace("return days * 7", "return days * 8"))
    (target / "shop" / "stock.py").write_text("def worth(): pass")
    command = ("prewarm", "m.jsonl", "--script", "program.py", "--check", "--json")
    done = farm(*command, cache=filled, cwd=target)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"Error: 2 of {SHOP} would have to be compiled"
    rows = {row["function"]: row for row in json.loads(done.stdout)["rows"]}
    assert rows["__main__:Shop.rent"]["outcome"] == "absent"
    assert rows["shop.stock:worth"]["outcome"] == "not_found"
    assert rows["shop.stock:worth"]["detail"] == "what has this name is no jitted function"
    assert rows["__main__:check"]["outcome"] == "there" and rows["__main__:check"]["seconds"] > 0


@pytest.mark.timeout(300)
@pytest.mark.concurrency
def test_a_prewarm_that_is_killed_goes_on_where_it_stopped(recorded: Recorded, tmp_path: Path) -> None:
    cache, choice = tmp_path / "cache", random.Random()
    command = [str(FARM), "prewarm", str(recorded.manifest), "--script", "program.py"]
    finished: dict[str, tuple[int, int]] = {}
    for _ in range(3):
        ours = subprocess.Popen(
            command, env=environment(cache), cwd=recorded.folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        assert ours.stderr is not None
        for _ in range(choice.randint(1, 2)):  # so many things are done, and others under way
            ours.stderr.readline()
        kill_tree(ours)
        assert as_before(cache, finished) == []
        finished = artifacts(cache)
    last = farm("prewarm", recorded.manifest, "--script", "program.py", "--json", cache=cache, cwd=recorded.folder)
    assert last.returncode == 0, last.stderr
    assert as_before(cache, finished) == []
    rows = json.loads(last.stdout)["rows"]
    there = {row["key"] for row in rows if row["key"] in finished}
    assert {row["outcome"] for row in rows if row["key"] in there} == {"there"}
    assert len(there) >= 3 and len(rows) == SHOP and {row["outcome"] for row in rows} <= {"there", "compiled"}


@pytest.mark.timeout(200)
@pytest.mark.concurrency
def test_ctrl_c_ends_it_and_says_what_is_done(recorded: Recorded, tmp_path: Path) -> None:
    command = [str(FARM), "prewarm", str(recorded.manifest), "--script", "program.py", "--workers", "1"]
    pipe = subprocess.PIPE
    ours = subprocess.Popen(
        command, env=environment(tmp_path / "cache"), cwd=recorded.folder, stderr=pipe, stdout=pipe, text=True
    )
    assert ours.stderr is not None and ours.stderr.readline().startswith(f"[1/{SHOP}")
    family = psutil.Process(ours.pid).children(recursive=True)
    ours.send_signal(signal.SIGINT)
    out, err = ours.communicate(timeout=60)
    assert ours.returncode == 1
    assert err.splitlines()[-1] == "Error: interrupted; what is compiled is kept: run it again to go on"
    assert out.count("  not done: interrupted\n") == SHOP - out.count("  compiled") > 0
    assert "Traceback" not in err and len(artifacts(tmp_path / "cache")) >= out.count("  compiled") >= 1
    _, alive = psutil.wait_procs(family, timeout=60)
    assert [one for one in alive if one.status() != psutil.STATUS_ZOMBIE] == []


def kill_tree(process: "subprocess.Popen[bytes]") -> None:
    """The process and all that it has started, each by its id."""
    family = [psutil.Process(process.pid)]
    for one in family:  # stopped first, so that nobody starts another meanwhile
        one.send_signal(signal.SIGSTOP)
        family += [child for child in one.children() if child not in family]
    for one in family:
        one.kill()
    process.communicate(timeout=60)
    _, alive = psutil.wait_procs(family, timeout=60)
    assert [one for one in alive if one.status() != psutil.STATUS_ZOMBIE] == []


def artifacts(cache: Path) -> dict[str, tuple[int, int]]:
    """Which file each artifact is: another inode, or another time, is another compile."""
    return {path.stem: (path.stat().st_ino, path.stat().st_mtime_ns) for path in cache.rglob("*.farm")}


def as_before(cache: Path, finished: dict[str, tuple[int, int]]) -> list[str]:
    """The artifacts that are not the files they were."""
    now = artifacts(cache)
    return [key for key, which in finished.items() if now.get(key) != which]
