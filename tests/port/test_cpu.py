"""What a CPU can do: which names and features are right, and what code may run here."""

import os
import re
from pathlib import Path

import numba
import pytest
from numba.core import codegen, config

from farm.errors import CpuError
from farm.port import cpu, target
from farm.port.cpu import BASELINE, GENERIC, LEVELS, Cpu, lacking, level, parse, runnable_for

needs_levels = pytest.mark.skipif(not target.triple().startswith("x86_64"), reason="levels are those of x86-64")
pytestmark = needs_levels
V2, V3, V4 = Cpu("x86-64-v2"), Cpu("x86-64-v3"), Cpu("x86-64-v4")
EVERYTHING = frozenset().union(*LEVELS.values())


def has(monkeypatch: pytest.MonkeyPatch, features: frozenset[str]) -> None:
    """From now on this CPU has just these of the features that LLVM can find."""
    known = {name for name, _ in cpu._what_this_has()}
    monkeypatch.setattr(cpu, "_what_this_has", lambda: frozenset((name, name in features) for name in known))


# -- names -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "features"),
    [
        ("generic", "generic", ""),
        ("x86-64-v2", "x86-64-v2", ""),
        (" X86-64-V3 , +avx512f ", "x86-64-v3", "+avx512f"),
        ("x86-64-v4,-avx512vl,+fma", "x86-64-v4", "-avx512vl,+fma"),
        ("skylake,-avx", "skylake", "-avx"),
    ],
)
def test_a_right_text_is_a_name_and_features(text: str, name: str, features: str) -> None:
    assert parse(text) == Cpu(name, features)


def test_host_is_what_numba_compiles_for_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse("host") == target.own_cpu() == Cpu(codegen.ll.get_host_cpu_name(), codegen.get_host_cpu_features())
    monkeypatch.setattr(config, "ENABLE_AVX", 0)
    assert parse("host") == target.own_cpu() and "+avx" not in parse("host").features
    monkeypatch.undo()
    more = parse("host,-fma")
    assert (more.name, more.features) == (parse("host").name, parse("host").features + ",-fma")
    assert str(parse("host")) == more.name and str(more) == f"{more.name},-fma"


@pytest.mark.parametrize(
    ("text", "near", "problem"),
    [
        ("x86-64-v9", "x86-64-v4", "no code for 'x86-64-v9'"),
        ("skylak", "skylake", "no code for 'skylak'"),
        ("hots", "host", "no code for 'hots'"),
        ("pentium4", None, "no code for 'pentium4'"),
        ("help", None, "no code for 'help'"),
        ("", None, "no code for ''"),
        ("x86-64-v3,avx512f", "+avx512f", "has no sign"),
        ("x86-64-v3,", None, "has no sign"),
        ("x86-64-v3,+avx51f", "+avx512f", "'avx51f' is no feature"),
        ("x86-64-v3,+16bit-mode", None, "'16bit-mode' is no feature"),
        ("host,-sse2", None, "without 'sse2'"),
    ],
)
def test_a_wrong_word_is_named_with_the_nearest_right_ones(text: str, near: str | None, problem: str) -> None:
    """LLVM would print something and go on, or end the process."""
    with pytest.raises(CpuError) as wrong:
        parse(text)
    assert problem in str(wrong.value) and isinstance(wrong.value, ValueError)
    assert near is None or (near in wrong.value.near and f"did you mean {wrong.value.near[0]}" in str(wrong.value))
    assert str(wrong.value).endswith("x86-64-v3,+avx512f") and "\n" not in str(wrong.value)


def test_a_name_that_llvm_cannot_be_asked_about_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "ASK", "import sys; sys.exit('no such library')")
    cpu.known_names.cache_clear()
    try:
        with pytest.raises(CpuError, match=r"LLVM cannot be asked .*no such library"):
            parse("skylake")
        assert parse("x86-64-v3") == V3, "it need not be asked about this one"
    finally:
        cpu.known_names.cache_clear()


def test_every_right_name_makes_code_in_silence_and_no_32_bit_name_is_right() -> None:
    names = cpu.known_names()
    assert {"generic", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "skylake", "znver3"} <= set(names)
    assert not {"i386", "pentium4", "athlon-xp", "help", "host"} & set(names)
    made, told = cpu._ask(*names, "no-such-cpu")
    assert tuple(made.split()) == names
    assert set(re.findall("'(.*)' is not a recognized", told)) == {"no-such-cpu"}


# -- what numba makes of it --------------------------------------------------------------------------------


def test_in_numba_only_the_code_generator_reads_the_settings_that_act_through_the_target() -> None:
    """They are left out of the rest of the key."""
    package = Path(numba.__file__).parent
    words = re.compile(rf"\b({'|'.join(target.ACT_THROUGH_THE_TARGET)})\b")
    found = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if not {"tests", "cuda"} & set(file.parts) and words.search(file.read_text(encoding="utf-8"))
    }
    assert found == {os.path.join("core", "codegen.py"), os.path.join("core", "config.py")}


@pytest.mark.parametrize("avx", [0, 1])
@pytest.mark.parametrize("features", [None, "", "+avx2"])
@pytest.mark.parametrize("name", [None, "generic", "x86-64-v3"])
def test_the_target_is_what_numbas_code_generator_would_be_made_for(
    monkeypatch: pytest.MonkeyPatch, name: str | None, features: str | None, avx: int
) -> None:
    for setting, value in (("CPU_NAME", name), ("CPU_FEATURES", features), ("ENABLE_AVX", avx)):
        monkeypatch.setattr(config, setting, value)
    generator = codegen.JITCPUCodegen.__new__(codegen.JITCPUCodegen)
    assert target.own_cpu() == Cpu(generator._get_host_cpu_name(), generator._get_host_cpu_features())
    assert target.own_cpu(target.settings()) == target.own_cpu()


def test_for_another_cpu_only_its_own_settings_change() -> None:
    now = target.settings()
    changed = target.settings_for(now, V3)
    assert target.own_cpu(changed) == V3, "not the features of this CPU beside another name"
    assert {name for name in now if now[name] != changed[name]} == {"CPU_NAME", "CPU_FEATURES"}
    assert target.settings_for(now, parse("host")) == now, "so that there is no second pool"


# -- what may run here -------------------------------------------------------------------------------------


def test_every_feature_of_a_level_is_one_that_llvm_can_find() -> None:
    assert {name for name, _ in cpu._what_this_has()} >= EVERYTHING
    assert [len(needed - BASELINE) for needed in LEVELS.values()] == [21, 16, 7, 0, 0], "as the psABI counts them"


@pytest.mark.parametrize(
    ("lacks", "best"),
    [
        (set(), "x86-64-v4"),
        ({"avx512cd"}, "x86-64-v3"),
        ({"movbe"}, "x86-64-v2"),
        ({"avx512f", "xsave"}, "x86-64-v2"),
        ({"sahf"}, "x86-64"),
    ],
)
def test_a_cpu_has_a_level_if_it_has_all_of_it(monkeypatch: pytest.MonkeyPatch, lacks: set[str], best: str) -> None:
    has(monkeypatch, EVERYTHING - lacks)
    assert level() == best
    wanted = list(LEVELS)[list(LEVELS).index(best) :]
    for own in (target.own_cpu(), Cpu("x86-64-v4", "+crc32")):  # numba may be told to compile for more than there is
        assert [str(one) for one in runnable_for(own)] == wanted


@pytest.mark.parametrize(
    ("own", "best"),
    [
        (V4, V3),
        (V3, V2),
        (V2, Cpu("x86-64")),
        (Cpu("x86-64"), Cpu(GENERIC)),
        (Cpu(GENERIC), Cpu("x86-64")),
        (Cpu("x86-64-v3", "+avx512f"), V3),
        (Cpu("x86-64-v3", "-avx"), V2),
        (Cpu("x86-64-v3", "-avx,+avx"), V3),
        (Cpu("x86-64-v2", "+avx2"), V2),
        (Cpu("x86-64-v4", "-sse3"), Cpu("x86-64")),
        (Cpu("skylake"), Cpu("x86-64")),  # what else it stands for nobody tells
        (Cpu(GENERIC, "-mmx"), None),
    ],
)
def test_who_restricts_numba_is_given_no_more(monkeypatch: pytest.MonkeyPatch, own: Cpu, best: Cpu | None) -> None:
    has(monkeypatch, EVERYTHING)
    assert next(iter(runnable_for(own)), None) == best
    assert own not in runnable_for(own)


def test_without_avx_no_code_with_avx_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, EVERYTHING)
    assert V4 in runnable_for(cpu.host())
    assert runnable_for(cpu.host(avx=False))[0] == V2


def test_code_for_a_level_that_this_cpu_lacks_must_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    own = target.own_cpu()
    has(monkeypatch, EVERYTHING - LEVELS["x86-64-v4"] | LEVELS["x86-64-v3"])
    assert lacking(V3, own) == lacking(Cpu(GENERIC), own) == ()
    assert lacking(V4, own) == lacking(V4, V4) == tuple(sorted(LEVELS["x86-64-v4"] - LEVELS["x86-64-v3"]))
    assert lacking(Cpu("x86-64-v4", "-avx512bw,-avx512vl"), own) == ("avx512cd", "avx512dq", "avx512f")
    assert lacking(Cpu("x86-64-v3", "+avx512f"), own) == ("avx512f",)


def test_code_for_a_name_that_says_nothing_runs_only_where_numba_would_make_it_too() -> None:
    own, other = target.own_cpu(), Cpu("knl")
    assert lacking(other, own) == ("what knl has",)
    assert lacking(other, other) == ()
    assert lacking(Cpu("x86-64-v2", "+warp-drive"), own) == ("warp-drive",)


def test_numbas_own_features_are_taken_as_given_where_llvm_cannot_find_them_out() -> None:
    tuned = Cpu(target.own_cpu().name, "+fast-gather")
    assert lacking(tuned, tuned) == () and lacking(tuned, target.own_cpu()) == ("fast-gather",)
