"""What goes over the pool's sockets, where it is nonsense, too large, or not read: that is one job's matter."""

# ruff: noqa: F811  # fixtures are arguments

import os
import signal
import threading
from pathlib import Path

import pytest
from fake_tasks import KEY
from test_pool import eventually, make, nothing_left, pool, result, send, start_method, text  # noqa: F401

from farm.config import StartMethod
from farm.job import messages
from farm.job.messages import FRAME, MESSAGE_MAX_BYTES, Built, Died, Job, Rejected, TimedOut, encode
from farm.pool import process
from farm.pool.pool import Pool
from farm.pool.process import READ_BYTES, READS_MAX, WRITES_MAX, Channel, Output
from farm.pool.ticket import Ticket
from farm.reasons import RefusalReason

MIB = 1 << 20
LARGE_MIB = 12
"""Sixty times what a socket holds."""


def at_the_gate(pool: Pool, path: Path) -> Ticket:
    """A job that is running, until the gate is opened."""
    os.mkfifo(path)
    ticket = send(pool, f"gate:{path}")
    eventually(lambda: ticket.worker_pid is not None)
    return ticket


def let_through(ticket: Ticket, path: Path) -> None:
    """It must be answered by the worker that had it all the time."""
    pid = ticket.worker_pid
    open(path, "wb").close()
    assert text(ticket).startswith("gate")
    assert ticket.worker_pid == pid


def test_a_worker_that_talks_nonsense_is_ended_and_no_other(pool: Pool, tmp_path: Path) -> None:
    waiting = at_the_gate(pool, tmp_path / "gate")
    assert result(send(pool, f"say:{(FRAME.pack(4) + b'oops').hex()}")) == Died(None, None, "")
    let_through(waiting, tmp_path / "gate")
    assert text(send(pool, "echo:after")) == "echo:after"


def test_an_answer_that_cannot_be_sent_is_told_and_costs_no_worker(pool: Pool) -> None:
    worker = text(send(pool, "pid:"))
    answer = result(send(pool, "unpicklable:"))
    assert isinstance(answer, Rejected) and answer.reason is RefusalReason.NOT_SERIALISABLE, answer
    answer = result(send(pool, f"large:{MESSAGE_MAX_BYTES // MIB + 1}"))
    assert isinstance(answer, Rejected) and answer.reason is RefusalReason.TOO_LARGE and "64" in answer.detail, answer
    assert text(send(pool, "pid:")) == worker


def test_a_job_that_is_too_large_is_refused_before_anything_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MESSAGE_MAX_BYTES", MIB)
    pool = make()
    answer = result(send(pool, "x" * MIB))
    assert isinstance(answer, Rejected) and answer.reason is RefusalReason.TOO_LARGE
    assert repr(pool) == "<Pool [0 idle, 0 busy | 0 queued]>"
    pool.close(0)


def test_the_largest_job_that_is_taken_can_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MESSAGE_MAX_BYTES", MIB)
    for label in ("f", "f" * 9999, "\u20ac" * 9999):
        payload = bytes(MIB - 4096 - 4 * len(label) - 1)
        assert Job(KEY, label, payload, 1.0).can_be_sent
        assert not Job(KEY, label, payload + b"x", 1.0).can_be_sent
        assert len(encode(messages.Compile(1 << 40, 1 << 40, label, payload))) <= MIB + FRAME.size


class Endless:
    """A socket that takes a thousand bytes at a time and always has a message to give."""

    def __init__(self) -> None:
        self.sent: list[object] = []
        self.reads = 0

    def setblocking(self, _: bool) -> None:
        pass

    def send(self, data: memoryview) -> int:
        self.sent.append(data.obj)
        return 1000

    def recv(self, size: int) -> bytes:
        """A row of messages, cut where the reader's buffer ends."""
        ping, at = encode(messages.Ping()), self.reads * size
        self.reads += 1
        return (ping * (size // len(ping) + 2))[at % len(ping) :][:size]


def test_neither_a_large_message_nor_a_talkative_worker_keeps_the_thread() -> None:
    """And what is left of a message is not copied for each piece of it: 300 MB took over half a minute so."""
    endless = Endless()
    channel = Channel(endless)  # type: ignore[arg-type]
    channel.send(messages.Compile(1, 1, "f", bytes(MIB)))
    assert channel.has_output and len(endless.sent) == WRITES_MAX
    assert len(set(map(id, endless.sent))) == 1
    read = channel.read()
    assert endless.reads == READS_MAX
    assert read == [messages.Ping()] * (READS_MAX * READ_BYTES // len(encode(messages.Ping())))


def test_output_without_an_end_does_not_keep_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    with open("/dev/zero", "rb") as endless:
        output = Output(os.dup(endless.fileno()))
    monkeypatch.setattr(process.os, "read", lambda *_: reads.append(1) or b"x")
    assert output.read() and len(reads) == READS_MAX
    monkeypatch.undo()
    output.close()


@pytest.mark.concurrency
def test_large_jobs_and_large_answers_at_once_block_nobody(pool: Pool) -> None:
    """Two workers write what does not fit into their sockets while the next large jobs are on their way to them."""
    large = [send(pool, "echo:" + letter * (LARGE_MIB * MIB)) for letter in "abcdef"]
    for letter, ticket in zip("abcdef", large, strict=True):
        answer = ticket.future.result(60)
        assert isinstance(answer, Built) and answer.inline == b"echo:" + letter.encode() * (LARGE_MIB * MIB)


@pytest.mark.concurrency
def test_a_worker_that_reads_nothing_is_its_jobs_matter(pool: Pool) -> None:
    worker = int(text(send(pool, "pid:")))
    os.kill(worker, signal.SIGSTOP)
    stuck = pool.submit(Job(KEY, "stuck", b"echo:" + bytes(LARGE_MIB * MIB), 1.0), waited=True, batch=False)
    eventually(lambda: stuck.worker_pid == worker)
    assert [text(send(pool, f"echo:{number}")) for number in range(20)] == [f"echo:{number}" for number in range(20)]
    assert result(stuck) == TimedOut(1.0)
    assert text(send(pool, "echo:after")) == "echo:after"


@pytest.mark.concurrency
def test_a_thread_that_does_not_come_to_read_loses_no_answer(pool: Pool) -> None:
    """Somebody's callback keeps the pool's thread, while workers write more than sockets and pipes hold."""
    reached, go_on = threading.Event(), threading.Event()

    def keep_the_thread(_: object) -> None:
        reached.set()
        go_on.wait(30)

    send(pool, "echo:").future.add_done_callback(keep_the_thread)
    assert reached.wait(30)
    tickets = [send(pool, f"large:{LARGE_MIB}"), send(pool, "flood:"), send(pool, "echo:" + "x" * (LARGE_MIB * MIB))]
    go_on.set()
    answers = [ticket.future.result(60) for ticket in tickets]
    assert all(isinstance(answer, Built) for answer in answers), answers


@pytest.mark.concurrency
@pytest.mark.parametrize("method", StartMethod, ids=lambda method: method.value)
def test_a_job_that_writes_for_ever_keeps_nobody_from_being_served(method: StartMethod, tmp_path: Path) -> None:
    pool = make(start_method=method)
    try:
        text(send(pool, "echo:"))
        endless = send(pool, "flood for ever:", deadline_s=1.5)
        eventually(lambda: endless.worker_pid is not None)
        assert [text(send(pool, f"echo:{number}")) for number in range(20)] == [
            f"echo:{number}" for number in range(20)
        ]
        assert result(endless) == TimedOut(1.5)
    finally:
        pool.close(0)
