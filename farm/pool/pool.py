"""The pool: one daemon thread that owns the foreman and the workers and does what the schedule says.

    any thread --submit, notes--> inbox --+
    foreman ----Forked, Exited------------+--> events --> Schedule --> instructions --> pool thread
    workers ----answers, output, EOF------+

Guarantees: every submitted job's future gets exactly one final answer; nothing is started before the
first submit, which does not block; a callback on a future or a listener cannot end the thread. It does
not survive a fork: in a child it only closes its descriptors, and refuses jobs.
"""

import contextlib
import itertools
import os
import selectors
import signal
import socket
import subprocess
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from farm.job.messages import (
    Answer,
    Cancelled,
    Compile,
    Exited,
    ForemanReady,
    Fork,
    Forked,
    Job,
    Message,
    Signal,
)
from farm.pool import foreman
from farm.pool import schedule as on
from farm.pool.process import Channel, Output, WorkerProcess
from farm.pool.ticket import PoolEvent, PoolEventKind, Ticket

CHECK_S: Final = 1.0
"""Memory and idleness are looked at so often."""
TICK_S: Final = 0.1
"""A guess: a job whose key another process compiles asks again after this."""
EXIT_REPORT_S: Final = 1.0
"""A worker whose socket ended waits so long for the foreman's report, which knows the exit code."""
BACKOFF_S: Final = 0.1
BACKOFF_MAX_S: Final = 5.0
FOREMAN_END_S: Final = 2.0


class Pool:
    """Worker processes of one settings tuple.

    Parameters
    ----------
    task, preload
        "module:function": what a worker does with a job, what the foreman does before it forks.
    paths
        The foreman's `sys.path`.
    memory_max_bytes
        A job whose worker uses more is ended; None for no limit.
    environment
        The foreman's whole environment; None for a copy of this process's.
    """

    def __init__(
        self,
        *,
        workers_max: int,
        task: str,
        preload: str | None,
        paths: tuple[str, ...],
        memory_max_bytes: int | None,
        jobs_max: int = 500,
        nice: int = 10,
        idle_s: float = 30,
        foreman_start_timeout_s: float = 10,
        environment: Mapping[str, str] | None = None,
        on_event: Callable[[PoolEvent], None] | None = None,
    ) -> None:
        self._task, self._preload, self._paths, self._environment = task, preload, paths, environment
        self._memory_max_bytes, self._idle_s, self._start_timeout_s = memory_max_bytes, idle_s, foreman_start_timeout_s
        self._listener = on_event
        self._schedule = on.Schedule(workers_max=workers_max, nice=nice, jobs_max=jobs_max)
        self._counts = self._schedule.counts()
        self._ids = itertools.count(1)
        self._owner_pid = os.getpid()
        # Guards _closed, _thread and the wake sockets. Nothing that blocks or calls out is done with it held.
        self._lock = threading.Lock()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._wake: tuple[socket.socket, socket.socket] | None = None
        self._inbox: deque[on.Event | Ticket] = deque()  # no lock: append and popleft are atomic
        # From here on only the pool's thread.
        self._tickets: dict[int, Ticket] = {}
        self._selector: selectors.BaseSelector | None = None
        self._workers: dict[int, WorkerProcess] = {}
        self._foreman: subprocess.Popen[bytes] | None = None
        self._control: Channel | None = None
        self._foreman_output: Output | None = None
        self._start_at: float | None = None
        self._start_deadline: float | None = None
        self._checked_at = self._ticked_at = 0.0
        _pools.add(self)

    def __repr__(self) -> str:
        counts, pending = self._counts, sum(isinstance(entry, on.Submitted) for entry in list(self._inbox))
        state = (
            "closed" if self._closed else f"{counts.idle} idle, {counts.busy} busy | {counts.queued + pending} queued"
        )
        return f"<Pool [{state}]>"

    def submit(self, job: Job, *, waited: bool, batch: bool) -> Ticket:
        """Queue a job; never blocks. On a closed pool the answer is Cancelled at once."""
        ticket = Ticket(next(self._ids), job, self._post)
        with self._lock:
            refused = self._closed or self._owner_pid != os.getpid()
            if not refused:
                self._inbox.append(ticket)
                self._inbox.append(on.Submitted(ticket.job_id, waited, batch))
                if self._thread is None:
                    self._wake = socket.socketpair()
                    for sock in self._wake:
                        sock.setblocking(False)
                    self._thread = threading.Thread(target=self._run, name="farm-pool", daemon=True)
                    self._thread.start()
        if refused:
            ticket.finish(Cancelled("the pool is closed"))
        else:
            self._post()
        return ticket

    def close(self, grace_s: float = 2.0) -> None:
        """Stop intake, cancel queued jobs, give running ones `grace_s`, end all processes. Idempotent.

        In a forked child it only closes descriptors.
        """
        if self._owner_pid != os.getpid():
            self._abandon()
            return
        with self._lock:
            first, self._closed = not self._closed, True
            thread = self._thread
        if thread is None or thread is threading.current_thread():
            if first and thread is not None:
                self._inbox.append(on.Close())
            return
        if first:
            self._post(on.Drain())
            end = time.monotonic() + grace_s
            while self._tickets and time.monotonic() < end and thread.is_alive():
                thread.join(0.01)
            self._post(on.Close())
        thread.join(FOREMAN_END_S * 2)

    def _post(self, event: on.Event | None = None) -> None:
        if event is not None:
            self._inbox.append(event)
        with self._lock:
            if self._wake is not None:
                with contextlib.suppress(OSError):
                    self._wake[1].send(b"x")

    def _abandon(self) -> None:
        """In a forked child: close the descriptors. The selector must not unregister: it is shared."""
        self._lock = threading.Lock()
        self._closed, self._thread = True, None
        if self._foreman is not None:
            self._foreman.returncode = 0  # not our child: no warning, no wait
        self._release()
        self._tickets.clear()

    def _release(self) -> None:
        if self._selector is not None:
            self._selector.close()
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()
        if self._control is not None:
            self._control.close()
        if self._foreman is not None and self._foreman.stdout is not None:
            with contextlib.suppress(OSError):
                self._foreman.stdout.close()
        with self._lock:
            wake, self._wake = self._wake, None
        for sock in wake or ():
            sock.close()

    # ---- the thread

    def _run(self) -> None:
        detail = "the pool was closed"
        try:
            self._selector = selectors.DefaultSelector()
            assert self._wake is not None
            self._selector.register(self._wake[0], selectors.EVENT_READ, "wake")
            while self._turn():
                pass
        except BaseException as error:  # a bug here must not leave anybody waiting
            detail = f"the pool's thread failed: {type(error).__name__}: {error}"
        finally:
            with self._lock:
                self._closed = True
            self._end_foreman()
            self._release()
            for entry in list(self._inbox):
                if isinstance(entry, Ticket):
                    self._tickets[entry.job_id] = entry
            for ticket in list(self._tickets.values()):
                ticket.finish(Cancelled(detail))
            self._tickets.clear()
            self._counts = on.Counts(0, 0, 0)

    def _turn(self) -> bool:
        """One round: read, take orders, judge times. False once the pool is closed."""
        assert self._selector is not None
        for key, mask in self._selector.select(self._timeout_s()):
            if key.data == "wake":
                assert self._wake is not None
                with contextlib.suppress(BlockingIOError):
                    self._wake[0].recv(4096)
            elif key.data == "control":
                self._serve_control(mask)
            elif key.data == "foreman output":
                if self._foreman_output is not None and not self._foreman_output.read():
                    self._selector.unregister(key.fileobj)
            else:
                worker_id, what = key.data
                self._serve_worker(worker_id, what, mask)
        closing = False
        while self._inbox:
            entry = self._inbox.popleft()
            if isinstance(entry, Ticket):
                self._tickets[entry.job_id] = entry
                continue
            closing = closing or isinstance(entry, on.Close)
            self._handle(entry)
        self._judge(time.monotonic())
        self._watch_writes()
        self._counts = self._schedule.counts()
        return not closing

    def _timeout_s(self) -> float:
        now = time.monotonic()
        ends = [now + CHECK_S]
        if self._schedule.resting:
            ends.append(self._ticked_at + TICK_S)
        ends += [end for end in (self._start_at, self._start_deadline) if end is not None]
        for worker in self._workers.values():
            if worker.deadline is not None:
                ends.append(worker.deadline[0])
            if worker.ended_at is not None:
                ends.append(worker.ended_at + EXIT_REPORT_S)
        return max(0.0, min(ends) - now)

    def _handle(self, event: on.Event) -> None:
        for instruction in self._schedule.handle(event):
            match instruction:
                case on.StartForeman(failures):
                    delay = min(BACKOFF_MAX_S, BACKOFF_S * 2 ** (failures - 1)) if failures else 0.0
                    self._start_at = time.monotonic() + delay
                case on.ForkWorker(worker_id, nice):
                    self._fork(worker_id, nice)
                case on.SendJob(worker_id, job_id, attempt):
                    self._send(self._workers[worker_id], job_id, attempt)
                case on.KillWorker(worker_id):
                    self._kill(worker_id)
                case on.FinishJob(job_id, answer):
                    ticket = self._tickets.pop(job_id, None)
                    if ticket is not None:
                        self._tell(PoolEventKind.JOB_FINISHED, ticket.job.label, type(answer).__name__)
                        ticket.finish(answer)

    def _fork(self, worker_id: int, nice: int) -> None:
        assert self._control is not None and self._selector is not None
        ours, theirs = socket.socketpair()
        read_fd, write_fd = os.pipe()
        worker = self._workers[worker_id] = WorkerProcess(worker_id, Channel(ours), Output(read_fd))
        self._selector.register(ours, selectors.EVENT_READ, (worker_id, "socket"))
        self._selector.register(read_fd, selectors.EVENT_READ, (worker_id, "output"))
        worker.idle_since = time.monotonic()
        self._control.send(Fork(worker_id, nice), (theirs.detach(), write_fd))

    def _send(self, worker: WorkerProcess, job_id: int, attempt: int) -> None:
        ticket = self._tickets[job_id]
        ticket.sent_at, ticket.worker_pid, job = time.monotonic(), worker.pid, ticket.job
        worker.job, worker.idle_since = (job_id, attempt), None
        worker.deadline = (time.monotonic() + job.deadline_s, job.deadline_s)
        self._tell(PoolEventKind.JOB_SENT, job.label, f"worker {worker.pid}, attempt {attempt}")
        worker.channel.send(Compile(job_id, attempt, job.label, job.payload))

    def _kill(self, worker_id: int) -> None:
        worker = self._workers.get(worker_id)
        if worker is not None:
            worker.killed, worker.job, worker.deadline, worker.idle_since = True, None, None, None
        if self._control is not None:
            self._control.send(Signal(worker_id, signal.SIGKILL))

    def _serve_control(self, mask: int) -> None:
        if self._control is None:
            return
        if mask & selectors.EVENT_WRITE:
            self._control.flush()
        for message in self._control.read():
            match message:
                case ForemanReady(pid):
                    self._start_deadline = None
                    self._tell(PoolEventKind.FOREMAN_UP, str(pid))
                    self._handle(on.ForemanUp())
                case Forked(worker_id, pid):
                    if worker := self._workers.get(worker_id):
                        worker.pid = pid
                        self._tell(PoolEventKind.WORKER_STARTED, str(pid))
                    self._handle(on.WorkerStarted(worker_id))
                case Exited(worker_id, exit_code, number):
                    self._bury(worker_id, exit_code, number)
        if self._control is not None and self._control.at_end:
            self._lose_foreman("the foreman ended")

    def _serve_worker(self, worker_id: int, what: str, mask: int) -> None:
        worker = self._workers.get(worker_id)
        if worker is None or self._selector is None:
            return
        if what == "output":
            if not worker.output.read():
                self._selector.unregister(worker.output.descriptor)
            return
        if mask & selectors.EVENT_WRITE:
            worker.channel.flush()
        messages = worker.channel.read()
        if not worker.channel.at_end:
            for message in messages:
                self._take(worker, message)
            return
        if self._control is not None:  # it may live on with its socket closed
            self._control.send(Signal(worker_id, signal.SIGKILL))
        if messages or worker.job is None:
            self._bury(worker_id, None, None, messages)
        elif worker.ended_at is None:
            worker.ended_at = time.monotonic()
            self._selector.unregister(worker.channel.sock)

    def _read(self, worker: WorkerProcess) -> None:
        for message in worker.channel.read():
            self._take(worker, message)

    def _take(self, worker: WorkerProcess, message: Message) -> None:
        if not isinstance(message, Answer):
            return
        if worker.job == (message.job_id, message.attempt):
            worker.job, worker.deadline, worker.idle_since = None, None, time.monotonic()
        self._handle(on.Answered(worker.worker_id, message.job_id, message.attempt, message.answer))

    def _bury(
        self, worker_id: int, exit_code: int | None, number: int | None, messages: Sequence[Message] = ()
    ) -> None:
        """A worker ended. A death and a good answer can be ready together: the answer comes first."""
        worker = self._workers.get(worker_id)
        if worker is None:
            return
        answers = tuple(
            on.Answered(worker_id, message.job_id, message.attempt, message.answer)
            for message in (*messages, *worker.channel.read())
            if isinstance(message, Answer)
        )
        worker.output.read()
        self._drop(worker)
        self._tell(PoolEventKind.WORKER_EXITED, str(worker.pid), f"exit code {exit_code}, signal {number}")
        last_lines = worker.output.last_lines()
        self._handle(on.WorkerExited(worker_id, exit_code, number, last_lines, worker.killed, answers))

    def _drop(self, worker: WorkerProcess) -> None:
        assert self._selector is not None
        for thing in (worker.channel.sock, worker.output.descriptor):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(thing)
        worker.close()
        self._workers.pop(worker.worker_id, None)

    def _judge(self, now: float) -> None:
        if self._start_at is not None and now >= self._start_at:
            self._start_at = None
            self._start_foreman(now)
        if self._start_deadline is not None and now >= self._start_deadline:
            self._lose_foreman(f"the foreman did not start in {self._start_timeout_s:g} s")
        if self._schedule.resting and now >= self._ticked_at + TICK_S:
            self._ticked_at = now
            self._handle(on.Tick())
        check = now >= self._checked_at + CHECK_S
        if check:
            self._checked_at = now
        for worker in list(self._workers.values()):
            self._judge_worker(worker, now, check)

    def _judge_worker(self, worker: WorkerProcess, now: float, check: bool) -> None:
        if worker.ended_at is not None and now >= worker.ended_at + EXIT_REPORT_S:
            self._bury(worker.worker_id, None, None)
            return
        if worker.deadline is not None and now >= worker.deadline[0]:
            self._read(worker)  # after a SIGCONT of the front the answer may be there
            if worker.deadline is not None and worker.job is not None:
                self._handle(on.DeadlinePassed(*worker.job, worker.deadline[1]))
        if not check or self._workers.get(worker.worker_id) is not worker:
            return
        if worker.job is not None and self._memory_max_bytes is not None:
            used = worker.memory_bytes(self._memory_max_bytes)
            if used > self._memory_max_bytes:
                self._handle(on.MemoryExceeded(*worker.job, self._memory_max_bytes, used))
        elif worker.idle_since is not None and now >= worker.idle_since + self._idle_s:
            self._handle(on.WorkerIdle(worker.worker_id))

    def _watch_writes(self) -> None:
        """Ask the selector for writability exactly where something waits to be written."""
        assert self._selector is not None
        channels = [worker.channel for worker in self._workers.values()]
        for channel in [*channels, *([self._control] if self._control is not None else [])]:
            with contextlib.suppress(KeyError, ValueError):
                key = self._selector.get_key(channel.sock)
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.has_output else 0)
                if key.events != wanted:
                    self._selector.modify(channel.sock, wanted, key.data)

    # ---- the foreman

    def _start_foreman(self, now: float) -> None:
        assert self._selector is not None
        ours, theirs = socket.socketpair()
        self._control = Channel(ours)
        try:
            with theirs:
                self._foreman = foreman.start(
                    control=theirs,
                    paths=self._paths,
                    task=self._task,
                    preload=self._preload,
                    environment=self._environment,
                )
        except (OSError, RuntimeError) as error:
            self._lose_foreman(f"the foreman could not be started: {error}")
            return
        assert self._foreman.stdout is not None
        self._foreman_output = Output(self._foreman.stdout.fileno())
        self._selector.register(ours, selectors.EVENT_READ, "control")
        self._selector.register(self._foreman.stdout, selectors.EVENT_READ, "foreman output")
        self._start_deadline = now + self._start_timeout_s

    def _lose_foreman(self, detail: str) -> None:
        for worker in list(self._workers.values()):
            self._read(worker)
        output = self._foreman_output
        if output is not None:
            output.read()
            detail = f"{detail}\n{output.last_lines()}".rstrip()
        self._end_foreman(at_once=True)
        for worker in list(self._workers.values()):
            self._drop(worker)
        self._tell(PoolEventKind.FOREMAN_LOST, "foreman", detail)
        self._handle(on.ForemanLost(detail))

    def _end_foreman(self, *, at_once: bool = False) -> None:
        """Close the control socket, at which the foreman kills all workers; see it end."""
        process, control = self._foreman, self._control
        self._foreman = self._control = self._foreman_output = self._start_deadline = None
        watched = [control.sock] if control is not None else []
        for thing in (*watched, process.stdout if process is not None else None):
            if thing is not None and self._selector is not None:
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(thing)
        if control is not None:
            control.close()
        if process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2 if at_once else FOREMAN_END_S)
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def _tell(self, kind: PoolEventKind, subject: str, detail: str = "") -> None:
        if self._listener is not None:
            try:
                self._listener(PoolEvent(kind, subject, detail))
            except Exception:
                self._listener = None  # a listener that raises is dropped


_pools: "weakref.WeakSet[Pool]" = weakref.WeakSet()


def _abandon_all() -> None:
    for pool in list(_pools):
        pool._abandon()


os.register_at_fork(after_in_child=_abandon_all)
