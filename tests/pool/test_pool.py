"""The pool with real processes."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import troubles
from fake_tasks import KEY

from farm.config import StartMethod
from farm.job.messages import Built, Cancelled, Died, FinalAnswer, Job, OutOfMemory, Rejected, TimedOut
from farm.pool import starter
from farm.pool.loop import Times
from farm.pool.pool import Pool
from farm.pool.schedule import STARTS_FAILED_MAX
from farm.pool.ticket import PoolEvent, PoolEventKind, Ticket
from farm.reasons import RefusalReason

ROOT, HERE = str(Path(__file__).parents[2]), str(Path(__file__).parent)
PATHS = (ROOT, HERE, *(p for p in sys.path if p and p != ROOT))


eventually = troubles.waiting_for(10)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    yield
    gc.collect()
    eventually(lambda: not troubles.children(recursive=True))
    eventually(lambda: not [t for t in threading.enumerate() if t.name == "farm-pool"])
    assert len(os.listdir("/proc/self/fd")) <= before


def make(**changes: object) -> Pool:
    settings: dict[str, object] = {
        "workers_max": 2,
        "task": "fake_tasks:perform",
        "preload": None,
        "paths": PATHS,
        "memory_max_bytes": None,
        "times": Times(start_s=60),
    }
    return Pool(**{**settings, **changes})  # type: ignore[arg-type]


@pytest.fixture(params=StartMethod, ids=lambda method: method.value)
def start_method(request: pytest.FixtureRequest) -> StartMethod:
    method: StartMethod = request.param
    return method


@pytest.fixture
def pool(start_method: StartMethod) -> Iterator[Pool]:
    made = make(start_method=start_method)
    yield made
    made.close(0)


@pytest.fixture
def forked() -> Iterator[Pool]:
    made = make()
    yield made
    made.close(0)


def send(pool: Pool, text: str, *, deadline_s: float = 60, waited: bool = True, batch: bool = False) -> Ticket:
    return pool.submit(Job(KEY, text, text.encode(), deadline_s), waited=waited, batch=batch)


def result(ticket: Ticket) -> FinalAnswer:
    return ticket.future.result(30)


def text(ticket: Ticket) -> str:
    answer = result(ticket)
    assert isinstance(answer, Built) and answer.inline is not None, answer
    return answer.inline.decode()


def test_nothing_starts_before_the_first_job(pool: Pool) -> None:
    assert not troubles.children() and repr(pool) == "<Pool [0 idle, 0 busy | 0 queued]>"


def test_jobs_come_back(pool: Pool) -> None:
    assert [text(t) for t in [send(pool, f"echo:{i}") for i in range(20)]] == [f"echo:{i}" for i in range(20)]


def test_a_large_payload_goes_through(pool: Pool) -> None:
    assert len(text(send(pool, "echo:" + "x" * 5_000_000))) == 5_000_005


@pytest.mark.concurrency
def test_a_crash_is_retried_once_on_another_worker(pool: Pool, tmp_path: Path) -> None:
    assert text(send(pool, f"once:{tmp_path / 'mark'}")) == "second"


@pytest.mark.concurrency
def test_two_deaths_condemn_and_others_are_undisturbed(pool: Pool) -> None:
    bad, good = send(pool, "exit:7"), [send(pool, f"echo:{i}") for i in range(10)]
    assert result(bad) == Died(7, None, "last words")
    assert all(text(t).startswith("echo") for t in good)


def test_a_segfault_is_named_by_its_signal(pool: Pool) -> None:
    answer = result(send(pool, "segv:"))
    assert isinstance(answer, Died) and answer.signal == signal.SIGSEGV


@pytest.mark.parametrize("what", ["loop:", "stop:"])
def test_a_deadline_ends_only_its_job(pool: Pool, what: str) -> None:
    bad = send(pool, what, deadline_s=0.5)
    assert text(send(pool, "echo:1")) == "echo:1"
    assert result(bad) == TimedOut(0.5)
    assert text(send(pool, "echo:2")) == "echo:2"


def test_a_job_over_its_memory_is_ended(start_method: StartMethod) -> None:
    pool = make(memory_max_bytes=400 << 20, start_method=start_method)
    try:
        answer = result(send(pool, "memory:500"))
        assert isinstance(answer, OutOfMemory) and answer.used_bytes > 400 << 20
    finally:
        pool.close(0)


def test_flooded_output_does_not_block_the_worker(pool: Pool) -> None:
    assert text(send(pool, "flood:")) == "flood:"


def test_an_exception_of_the_task_is_a_rejection(pool: Pool) -> None:
    assert result(send(pool, "raise:oops")) == Rejected(RefusalReason.RESTORE_FAILED, "ValueError: oops")


@pytest.mark.concurrency
def test_busy_goes_back_to_the_queue(pool: Pool, tmp_path: Path) -> None:
    assert text(send(pool, f"busy:{tmp_path / 'mark'}")).startswith("busy")


@pytest.mark.concurrency
def test_a_foreman_killed_is_restarted_and_its_jobs_finish(forked: Pool, tmp_path: Path) -> None:
    foreman = int(text(send(forked, "ppid:")))
    os.mkfifo(gate := tmp_path / "gate")
    waiting = send(forked, f"gate:{gate}")
    eventually(lambda: " 1 busy" in repr(forked))
    os.kill(foreman, signal.SIGKILL)
    eventually(lambda: not alive(foreman))
    assert int(text(send(forked, "ppid:"))) != foreman
    open(gate, "wb").close()
    assert text(waiting).startswith("gate")


def test_a_stopped_foreman_is_replaced_and_its_jobs_finish(tmp_path: Path) -> None:
    seen: list[PoolEvent] = []
    pool = make(times=Times(start_s=60, silent_s=0.5), on_event=seen.append)
    try:
        foreman, worker = int(text(send(pool, "ppid:"))), int(text(send(pool, "pid:")))
        os.mkfifo(gate := tmp_path / "gate")
        waiting = send(pool, f"gate:{gate}")
        eventually(lambda: " 1 busy" in repr(pool))
        os.kill(foreman, signal.SIGSTOP)
        eventually(lambda: not alive(foreman) and not alive(worker))
        assert int(text(send(pool, "ppid:"))) != foreman
        open(gate, "wb").close()
        assert text(waiting).startswith("gate")
        (lost,) = [event for event in seen if event.kind is PoolEventKind.FOREMAN_LOST]
        assert "silent" in lost.detail
    finally:
        pool.close(0)


def test_a_dead_foreman_is_noticed_though_its_socket_is_held_open(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    start = starter.start

    def start_and_hold(*arguments: Any, descriptor: int, **more: Any) -> "subprocess.Popen[bytes]":
        held.append(os.dup(descriptor))
        return start(*arguments, descriptor=descriptor, **more)

    monkeypatch.setattr(starter, "start", start_and_hold)
    seen: list[PoolEvent] = []
    pool = make(on_event=seen.append, times=Times(start_s=60, silent_s=1000))
    try:
        foreman = int(text(send(pool, "ppid:")))
        os.kill(foreman, signal.SIGKILL)
        eventually(lambda: not alive(foreman))
        assert int(text(send(pool, "ppid:"))) != foreman
        assert [event.kind for event in seen].count(PoolEventKind.FOREMAN_LOST) == 1
    finally:
        pool.close(0)
        for descriptor in held:
            os.close(descriptor)


def test_a_slow_but_living_foreman_is_left_alone() -> None:
    pool = make(times=Times(start_s=60, silent_s=0.05))
    try:
        foreman = text(send(pool, "ppid:"))
        assert result(send(pool, "loop:", deadline_s=2.5)) == TimedOut(2.5)
        assert text(send(pool, "ppid:")) == foreman
    finally:
        pool.close(0)


def test_an_idle_foreman_leaves_and_comes_back_with_the_next_job() -> None:
    pool = make(times=Times(start_s=60, worker_idle_s=0.1, foreman_idle_s=0.1))
    try:
        foreman = int(text(send(pool, "ppid:")))
        eventually(lambda: not alive(foreman))
        eventually(lambda: not troubles.children())
        assert int(text(send(pool, "ppid:"))) != foreman
    finally:
        pool.close(0)


def test_a_job_is_taken_at_once_whether_a_worker_is_free_or_not(pool: Pool, tmp_path: Path) -> None:
    os.mkfifo(gate := tmp_path / "gate")
    tickets = [send(pool, f"gate:{gate}") for _ in range(4)]
    for one in tickets:
        assert one.taken.wait(60)
    assert not any(one.future.done() for one in tickets)
    for _ in tickets:  # one at a time passes
        open(gate, "wb").close()
    pool.close(0)
    assert send(pool, "echo:").taken.is_set()  # refused


def test_a_worker_that_has_grown_is_replaced() -> None:
    pool = make(workers_max=1, growth_max_bytes=100 << 20)
    try:
        first = text(send(pool, "pid:"))
        assert text(send(pool, "keep:50")) == text(send(pool, "pid:")) == first
        assert text(send(pool, "keep:100")) == first
        assert text(send(pool, "pid:")) != first
    finally:
        pool.close(0)


def test_a_worker_killed_from_outside_does_not_condemn_its_job(pool: Pool, tmp_path: Path) -> None:
    os.mkfifo(gate := tmp_path / "gate")
    waiting = send(pool, f"gate:{gate}")
    for _ in range(3):  # DEATHS_MAX and one
        eventually(lambda: waiting.worker_pid is not None and alive(waiting.worker_pid))
        pid = waiting.worker_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        eventually(lambda pid=pid: waiting.worker_pid != pid)  # type: ignore[misc]
    open(gate, "wb").close()
    assert text(waiting).startswith("gate")


def test_a_worker_killed_from_outside_for_ever_comes_to_an_end(pool: Pool) -> None:
    assert result(send(pool, "kill:")) == Died(None, signal.SIGKILL, "")


def test_a_job_that_closes_its_socket_is_a_job_that_ended_its_worker(pool: Pool) -> None:
    assert result(send(pool, "deaf:")) == Died(None, None, "")


def test_a_spawned_worker_that_cannot_start_cancels_with_no_process_left() -> None:
    pool = make(preload="fake_tasks:preload_fails", start_method=StartMethod.SPAWN)
    try:
        assert isinstance(result(send(pool, "echo:")), Cancelled)
    finally:
        pool.close(0)


@pytest.mark.parametrize("method", StartMethod, ids=lambda method: method.value)
def test_who_takes_long_to_start_and_computes_is_waited_for(method: StartMethod) -> None:
    pool = make(preload="fake_tasks:preload_computes", preload_with="2.5", start_method=method, times=Times(start_s=1))
    try:
        assert text(send(pool, "echo:")) == "echo:"
    finally:
        pool.close(0)


@pytest.mark.parametrize("method", StartMethod, ids=lambda method: method.value)
def test_who_does_not_start_and_does_nothing_is_ended(tmp_path: Path, method: StartMethod) -> None:
    os.mkfifo(gate := tmp_path / "gate")
    paths = (str(tmp_path), *PATHS)
    (tmp_path / "never.py").write_text(f"open({str(gate)!r}).read()")
    pool = make(preload="never:main", paths=paths, start_method=method, times=Times(start_s=0.5))
    try:
        assert isinstance(result(send(pool, "echo:")), Cancelled)
    finally:
        pool.close(0)


def test_a_ticket_and_an_event_name_the_worker() -> None:
    seen: list[PoolEvent] = []
    pool = make(on_event=seen.append)
    try:
        before, ticket = time.monotonic(), send(pool, "pid:")
        assert ticket.sent_at is None or ticket.sent_at >= before
        assert text(ticket) == str(ticket.worker_pid)
        assert ticket.sent_at is not None and before <= ticket.sent_at <= time.monotonic()
        sent = [event for event in seen if event.kind is PoolEventKind.JOB_SENT]
        assert [event.worker_pid for event in sent] == [ticket.worker_pid]
    finally:
        pool.close(0)


def test_no_descriptors_left_is_an_answer_and_not_an_exception(forked: Pool) -> None:
    text(send(forked, "pid:"))
    other = make()
    with troubles.no_descriptors():
        refused = result(send(other, "echo:"))
        assert isinstance(refused, Cancelled) and "could not be started" in refused.detail
        answers = [result(send(forked, "loop:", deadline_s=0.5)) for _ in range(2)]
        assert all(isinstance(answer, (TimedOut, Cancelled)) for answer in answers)
    assert text(send(forked, "echo:")) == text(send(other, "echo:")) == "echo:"
    other.close(0)


def test_a_foreman_that_cannot_start_cancels_with_its_output() -> None:
    seen: list[PoolEvent] = []
    pool = make(preload="fake_tasks:preload_fails", on_event=seen.append)
    try:
        answer = result(send(pool, "echo:"))
        assert isinstance(answer, Cancelled) and "no preload today" in answer.detail
        told = [event.kind for event in seen if event.kind is not PoolEventKind.JOB_FINISHED]
        assert told == [PoolEventKind.FOREMAN_NOT_STARTED] * STARTS_FAILED_MAX
    finally:
        pool.close(0)


@pytest.mark.concurrency
def test_result_after_close_is_dropped(pool: Pool) -> None:
    ticket = send(pool, "loop:")
    eventually(lambda: " 1 busy" in repr(pool))
    pool.close(0)
    assert isinstance(result(ticket), Cancelled)
    pool.close(0)
    assert isinstance(result(send(pool, "echo:")), Cancelled)
    assert repr(pool) == "<Pool [closed]>"


@pytest.mark.concurrency
def test_close_in_a_forked_child_is_harmless(pool: Pool) -> None:
    text(send(pool, "echo:"))
    if (child := os.fork()) == 0:
        try:
            pool.close()
            os._exit(0 if isinstance(result(send(pool, "echo:")), Cancelled) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert text(send(pool, "echo:after")) == "echo:after"


def sockets_and_pipes() -> int:
    names = os.listdir("/proc/self/fd")
    kinds = [os.readlink(f"/proc/self/fd/{name}") for name in names if os.path.lexists(f"/proc/self/fd/{name}")]
    return sum(kind.startswith(("socket:", "pipe:", "anon_inode:[eventpoll]")) for kind in kinds)


def test_a_forked_child_holds_no_descriptor_of_the_pool_and_the_pool_goes_on(
    tmp_path: Path, start_method: StartMethod
) -> None:
    before = sockets_and_pipes()
    pool = make(start_method=start_method)
    try:
        os.mkfifo(gate := tmp_path / "gate")
        waiting = send(pool, f"gate:{gate}")
        eventually(lambda: " 1 busy" in repr(pool))
        assert sockets_and_pipes() > before
        for _ in range(5):
            if (child := os.fork()) == 0:
                try:
                    os._exit(0 if sockets_and_pipes() == before else 1)
                finally:
                    os._exit(2)
            assert os.waitpid(child, 0)[1] == 0
        open(gate, "wb").close()
        assert text(waiting).startswith("gate")
    finally:
        pool.close(0)


@pytest.mark.concurrency
def test_callbacks_and_listeners_cannot_end_the_thread() -> None:
    seen: list[PoolEventKind] = []

    def listen(event: PoolEvent) -> None:
        seen.append(event.kind)
        raise ValueError

    def exit_now(_: object) -> None:
        raise SystemExit

    pool = make(on_event=listen)
    try:
        send(pool, "echo:").future.add_done_callback(exit_now)
        assert text(send(pool, "echo:2")) == "echo:2" and len(seen) == 1
    finally:
        pool.close(0)


@pytest.mark.concurrency
@pytest.mark.parametrize("what", ["loop:", "stop:", "gil:30"])
def test_a_killed_front_leaves_no_process(what: str, start_method: StartMethod) -> None:
    code = textwrap.dedent(f"""
        import sys; sys.path[:] = {list(PATHS)!r}
        from test_pool import make, send, text, eventually
        from farm.config import StartMethod
        pool = make(start_method=StartMethod({start_method.value!r}))
        print(text(send(pool, "ppid:")), text(send(pool, "pid:")), flush=True)
        send(pool, {what!r}); send(pool, {what!r})
        eventually(lambda: " 2 busy" in repr(pool))
        print("ready", flush=True)
        sys.stdin.read()
    """)
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as front:
        assert front.stdout is not None
        front.stdout.readline()
        assert front.stdout.readline() == b"ready\n"
        tree = [child.pid for child in psutil.Process(front.pid).children(recursive=True)]
        assert len(tree) >= 2
        front.kill()
    eventually(lambda: not any(map(alive, tree)), 1.0)


def test_a_users_typing_module_does_not_break_the_foreman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "typing.py").write_text("raise SystemExit('mine')")
    monkeypatch.chdir(tmp_path)
    pool = make()
    try:
        assert text(send(pool, "echo:")) == "echo:"
    finally:
        pool.close(0)


def test_a_key_mismatch_is_passed_on_after_a_fresh_worker(pool: Pool) -> None:
    first = text(send(pool, "pid:"))
    answer = result(send(pool, "mismatch:"))
    assert isinstance(answer, Rejected) and answer.reason is RefusalReason.KEY_MISMATCH and answer.detail != first
