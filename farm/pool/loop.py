"""The pool's thread: it owns the processes, turns what they say into events, and does what the schedule says.

    inbox:   jobs, notes, Drain, Close ---+
    starter: ForemanReady, Forked, Exited +--> events --> Schedule --> instructions --> starter, workers, tickets
    workers: answers, output, EOF --------+
    clock:   deadlines, memory, idleness -+

Nothing here blocks but the selector and the end of a process, which is bounded. A worker's death is its
starter's report **or** the end of its socket: a grandchild's copy of the socket suppresses the one, a dead
foreman the other.
"""

import contextlib
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from farm.config import StartMethod
from farm.errors import told
from farm.job.messages import Answer, Busy, Cancelled, Compile, Exited, ForemanReady, Forked, Message, Pong
from farm.pool import instructions as on
from farm.pool.inbox import Inbox
from farm.pool.launch import Setup
from farm.pool.patience import START_MAX_S, Patience
from farm.pool.process import Channel, Output, WorkerProcess
from farm.pool.schedule import Counts, Schedule
from farm.pool.starter import REAP_S, ForemanProcess, SpawnedWorkers, Starter
from farm.pool.ticket import Attempt, AttemptEnd, PoolEvent, PoolEventKind, Ticket, WorkerView

CHECK_S: Final = 1.0
"""Memory, idleness and the foreman's pulse are looked at so often."""
TICK_S: Final = 0.1
"""A guess: a job whose key another process compiles asks again after this."""
EXIT_REPORT_S: Final = 1.0
"""A worker whose socket ended waits so long for the starter's report, which knows the exit code."""
BACKOFF_S: Final = 0.1
BACKOFF_MAX_S: Final = 5.0
END_S: Final = 2.0
"""A guess: the foreman kills its workers and sees them end within it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The pool's patience, in seconds.

    Parameters
    ----------
    worker_idle_s, foreman_idle_s
        A worker without a job, a foreman without workers and jobs leaves after so long.
    start_s
        A foreman (or a worker that is started on its own) must say that it is ready within it, or else be seen to use
        the processor.
    silent_s
        A foreman that does not answer for so long is stopped or hangs: it is replaced.
    """

    worker_idle_s: float = 30
    foreman_idle_s: float = 300
    start_s: float = 10
    silent_s: float = 10


class Loop:
    """All of a pool that only its thread may touch. `counts`, `tickets` and `inbox` may be read by others."""

    def __init__(
        self,
        *,
        schedule: Schedule,
        setup: Setup,
        times: Times,
        start_method: StartMethod,
        memory_max_bytes: int | None,
        listener: Callable[[PoolEvent], None] | None,
        stop_intake: Callable[[], None],
    ) -> None:
        self.inbox = Inbox()
        self.tickets: dict[int, Ticket] = {}
        self.counts = schedule.counts()
        self._schedule, self._setup, self._times = schedule, setup, times
        self._start_method = start_method
        self._memory_max_bytes = memory_max_bytes
        self._listener, self._stop_intake = listener, stop_intake
        self._selector: selectors.BaseSelector = selectors.DefaultSelector()
        self._workers: dict[int, WorkerProcess] = {}
        self._starter: Starter | None = None
        self._start_at: float | None = None
        self._starting: Patience | None = None
        self._foreman_was_up = False
        self._pinged_at: float | None = None
        self._unused_since: float | None = None
        """Since when the foreman has had neither a job nor a worker."""
        self._checked_at = self._ticked_at = 0.0

    def run(self) -> None:
        """Run until closed. Every ticket is answered at the end, whatever the end was."""
        detail = "the pool was closed"
        try:
            self._selector.register(self.inbox, selectors.EVENT_READ, "inbox")
            while self._turn():
                pass
        except BaseException as error:  # a bug here must not leave anybody waiting
            detail = f"the pool's thread failed: {told(error)}"
        finally:
            self._stop_intake()
            try:
                self._end_foreman(END_S)
                for worker in list(self._workers.values()):
                    self._drop(worker)
                self._selector.close()
            finally:
                self._cancel_all(detail)

    def _cancel_all(self, detail: str) -> None:
        """The intake is stopped: what is in the inbox is all that will ever be there."""
        while (entry := self.inbox.take()) is not None:
            if isinstance(entry, Ticket):
                self.tickets[entry.job_id] = entry
        self.inbox.close()
        self.counts = Counts(0, 0, 0)
        for ticket in list(self.tickets.values()):
            ticket.finish(Cancelled(detail))
        self.tickets.clear()

    def abandon(self) -> None:
        """In a forked child: close the descriptors. The selector must not unregister: it is shared."""
        self._selector.close()
        if self._starter is not None:
            self._starter.abandon()
        for worker in self._workers.values():
            worker.close()
        self.inbox.abandon()
        self._workers.clear()
        self.tickets.clear()

    @property
    def ready(self) -> bool:
        """Whether the foreman is up; without one, whether a worker is. For any thread: it may be a moment old."""
        if self._start_method is StartMethod.FORK:
            return self._foreman_was_up
        return any(worker.starting is None for worker in list(self._workers.values()))

    def look(self) -> tuple[tuple[WorkerView, ...], tuple[str, ...]]:
        """The workers, and the labels of the jobs that none of them has. For any thread: it may be a moment old."""
        views, queued = [], dict(self.tickets)
        for worker in list(self._workers.values()):
            ticket = None if (job := worker.job) is None else queued.pop(job[0], None)
            label, since = (None, None) if ticket is None else (ticket.job.label, ticket.sent_at)
            views.append(WorkerView(worker.pid, label, since))
        return tuple(views), tuple(ticket.job.label for ticket in queued.values())

    # ---- one round

    def _turn(self) -> bool:
        """Read, take orders, judge times. False once the pool is closed."""
        for key, mask in self._selector.select(self._timeout_s()):
            match key.data:
                case "inbox":
                    self.inbox.clear_wakes()
                case "starter":
                    self._serve_starter(mask)
                case "starter output":
                    if self._starter is not None and self._starter.output and not self._starter.output.read():
                        self._selector.unregister(key.fileobj)
                case (worker_id, what):
                    self._serve_worker(worker_id, what, mask)
        if self._starter is not None and self._starter.channel is None:
            self._serve_starter(0)
        closing = False
        while (entry := self.inbox.take()) is not None:
            if isinstance(entry, Ticket):
                self.tickets[entry.job_id] = entry
                continue
            closing = closing or isinstance(entry, on.Close)
            self._handle(entry)
            if isinstance(entry, on.Submitted) and (ticket := self.tickets.get(entry.job_id)) is not None:
                ticket.taken.set()
        self._judge(time.monotonic())
        self._watch_writes()
        self.counts = self._schedule.counts()
        return not closing

    def _timeout_s(self) -> float | None:
        """None, to sleep until somebody wants something, if there is nothing to look after."""
        now = time.monotonic()
        ends = [now + CHECK_S] if self._workers or self._pinged_at is not None else []
        if self._schedule.resting:
            ends.append(self._ticked_at + TICK_S)
        if self._unused_since is not None:
            ends.append(self._unused_since + self._times.foreman_idle_s)
        if self._start_at is not None:
            ends.append(self._start_at)
        if self._starting is not None:
            ends.append(self._starting.check_at)
        for worker in self._workers.values():
            if worker.deadline is not None:
                ends.append(worker.deadline[0])
            if worker.ended_at is not None:
                # A starter that has to be asked is asked often while an answer is due.
                told = self._starter is not None and self._starter.channel is not None
                ends.append(worker.ended_at + EXIT_REPORT_S if told else now + 0.02)
        return max(0.0, min(ends) - now) if ends else None

    def _handle(self, event: on.Event) -> None:
        for instruction in self._schedule.handle(event):
            match instruction:
                case on.StartForeman(failures):
                    delay = min(BACKOFF_MAX_S, BACKOFF_S * 2 ** (failures - 1)) if failures else 0.0
                    self._start_at = time.monotonic() + delay
                case on.StopForeman():
                    self._end_foreman(END_S)
                case on.ForkWorker(worker_id, nice):
                    self._start_worker(worker_id, nice)
                case on.SendJob(worker_id, job_id, attempt):
                    self._send(self._workers[worker_id], self.tickets[job_id], attempt)
                case on.KillWorker(worker_id, recycled):
                    if recycled and (worn := self._workers.get(worker_id)) is not None:
                        self._tell(PoolEventKind.WORKER_RECYCLED, str(worn.pid), worker_pid=worn.pid)
                    self._kill(worker_id)
                case on.FinishJob(job_id, answer):
                    ticket = self.tickets.pop(job_id, None)
                    if ticket is not None:
                        self._tell(
                            PoolEventKind.JOB_FINISHED, ticket.job.label, type(answer).__name__, ticket.worker_pid
                        )
                        ticket.finish(answer)

    def _start_worker(self, worker_id: int, nice: int) -> None:
        assert self._starter is not None
        try:
            worker = self._starter.start(worker_id, nice)
        except OSError:  # no descriptors, no processes; told later: this is in the middle of an event
            self.inbox.put(on.WorkerExited(worker_id, None, None))
            return
        self._workers[worker_id] = worker
        self._selector.register(worker.channel.sock, selectors.EVENT_READ, (worker_id, "socket"))
        self._selector.register(worker.output.descriptor, selectors.EVENT_READ, (worker_id, "output"))

    def _send(self, worker: WorkerProcess, ticket: Ticket, attempt: int) -> None:
        job, now = ticket.job, time.monotonic()
        worker.job, worker.idle_since = (ticket.job_id, attempt), None
        worker.deadline = (now + job.deadline_s, job.deadline_s)
        ticket.attempts.append(Attempt(worker.pid, now))
        self._tell(PoolEventKind.JOB_SENT, job.label, f"worker {worker.pid}, attempt {attempt}", worker.pid)
        worker.channel.send(Compile(ticket.job_id, attempt, job.label, job.payload))

    def _kill(self, worker_id: int) -> None:
        worker = self._workers.get(worker_id)
        if worker is not None:
            self._end_attempt(worker, AttemptEnd.STOPPED)
            worker.killed_in_job = worker.job is not None
            worker.killed, worker.job, worker.deadline, worker.idle_since = True, None, None, None
        if self._starter is not None:
            self._starter.signal(worker_id, signal.SIGKILL)

    def _end_attempt(self, worker: WorkerProcess, how: AttemptEnd) -> None:
        ticket = None if worker.job is None else self.tickets.get(worker.job[0])
        if ticket is not None:
            ticket.end_attempt(how)

    # ---- what the processes say

    def _serve_starter(self, mask: int) -> None:
        starter = self._starter
        if starter is None:
            return
        if starter.channel is not None and mask & selectors.EVENT_WRITE:
            starter.channel.flush()
        for message in starter.messages():
            match message:
                case ForemanReady(pid):
                    self._starting, self._foreman_was_up = None, True
                    self._tell(PoolEventKind.FOREMAN_UP, str(pid))
                    self._handle(on.ForemanUp())
                case Forked():
                    self._start_done(message)
                case Exited(worker_id, exit_code, number):
                    self._bury(worker_id, exit_code, number)
                case Pong():
                    self._pinged_at = None
        if starter.channel is not None and starter.channel.at_end and self._starter is starter:
            self._lose_foreman("the foreman ended")

    def _start_done(self, message: Forked) -> None:
        if worker := self._workers.get(message.worker_id):
            worker.pid, worker.starting = message.pid, None
            self._tell(PoolEventKind.WORKER_STARTED, str(worker.pid), worker_pid=worker.pid)
        self._handle(on.WorkerStarted(message.worker_id))

    def _serve_worker(self, worker_id: int, what: str, mask: int) -> None:
        worker = self._workers.get(worker_id)
        if worker is None:
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
        elif messages or worker.job is None or worker.channel.broken:
            self._end_worker(worker, messages)
        elif worker.ended_at is None:
            worker.ended_at = time.monotonic()
            self._selector.unregister(worker.channel.sock)

    def _take(self, worker: WorkerProcess, message: Message) -> None:
        if isinstance(message, Forked):
            self._start_done(message)
        if not isinstance(message, Answer):
            return
        if worker.job == (message.job_id, message.attempt):
            self._end_attempt(worker, AttemptEnd.BUSY if isinstance(message.answer, Busy) else AttemptEnd.ANSWERED)
            worker.job, worker.deadline, worker.idle_since = None, None, time.monotonic()
        self._handle(
            on.Answered(worker.worker_id, message.job_id, message.attempt, message.answer, message.grown_bytes)
        )

    def _end_worker(self, worker: WorkerProcess, messages: Sequence[Message] = ()) -> None:
        """Bury a worker whose starter has not said that it ended: it may live on with its socket closed."""
        if self._starter is not None:
            self._starter.signal(worker.worker_id, signal.SIGKILL)
        self._bury(worker.worker_id, None, None, messages)

    def _bury(
        self, worker_id: int, exit_code: int | None, number: int | None, messages: Sequence[Message] = ()
    ) -> None:
        """A worker ended. A death and a good answer can be ready together: the answer comes first."""
        worker = self._workers.get(worker_id)
        if worker is None:
            return
        answers = tuple(
            on.Answered(worker_id, message.job_id, message.attempt, message.answer)
            for message in (*messages, *worker.channel.drain())
            if isinstance(message, Answer)
        )
        worker.output.read()
        self._end_attempt(worker, AttemptEnd.ANSWERED if answers else AttemptEnd.DIED)
        self._drop(worker)
        detail = f"exit code {exit_code}, signal {number}"
        in_job = worker.killed_in_job or worker.job is not None
        self._tell(PoolEventKind.WORKER_EXITED, str(worker.pid), detail, worker.pid, in_job)
        last_lines = worker.output.last_lines()
        self._handle(on.WorkerExited(worker_id, exit_code, number, last_lines, worker.killed, answers))

    def _drop(self, worker: WorkerProcess) -> None:
        self._unwatch(worker.channel, worker.output)
        worker.close()
        self._workers.pop(worker.worker_id, None)

    # ---- what the clock says

    def _judge(self, now: float) -> None:
        if self._start_at is not None and now >= self._start_at:
            self._start_at = None
            self._start_foreman(now)
        if self._starting is not None and now >= self._starting.check_at:
            self._serve_starter(0)
            if self._starting is not None and self._starting.has_ended(now):
                how = f"it did nothing for {self._times.start_s:g} s, or ran for {START_MAX_S:g} s"
                self._lose_foreman(f"the foreman did not become ready: {how}")
        if self._schedule.resting and now >= self._ticked_at + TICK_S:
            self._ticked_at = now
            self._handle(on.Tick())
        check = now >= self._checked_at + CHECK_S
        if check:
            self._checked_at = now
            self._feel_pulse(now)
        for worker in list(self._workers.values()):
            self._judge_worker(worker, now, check)
        self._judge_foreman(now)

    def _judge_worker(self, worker: WorkerProcess, now: float, check: bool) -> None:
        late = worker.starting is not None and worker.starting.has_ended(now)
        if late or (worker.ended_at is not None and now >= worker.ended_at + EXIT_REPORT_S):
            self._end_worker(worker)
            return
        if worker.deadline is not None and now >= worker.deadline[0]:
            for message in worker.channel.drain():  # after a SIGCONT of the front the answer may be there
                self._take(worker, message)
            if worker.deadline is not None and worker.job is not None:
                self._handle(on.DeadlinePassed(*worker.job, worker.deadline[1]))
        if not check or self._workers.get(worker.worker_id) is not worker:
            return
        if worker.job is not None and self._memory_max_bytes is not None:
            used = worker.used_bytes(self._memory_max_bytes)
            if used > self._memory_max_bytes:
                self._handle(on.MemoryExceeded(*worker.job, self._memory_max_bytes, used))
        elif worker.idle_since is not None and now >= worker.idle_since + self._times.worker_idle_s:
            self._handle(on.WorkerIdle(worker.worker_id))

    def _feel_pulse(self, now: float) -> None:
        """A stopped foreman keeps its socket open: only silence tells."""
        if self._starter is None or self._starting is not None:
            return
        if self._starter.has_ended():
            self._lose_foreman("the foreman ended")
        elif self._pinged_at is None:
            if self._workers and self._starter.ping():
                self._pinged_at = now
        elif now >= self._pinged_at + self._times.silent_s:
            self._serve_starter(0)  # after a SIGCONT of the front the answer may be there
            if self._pinged_at is not None:
                self._lose_foreman(f"the foreman was silent for {self._times.silent_s:g} s")

    def _judge_foreman(self, now: float) -> None:
        if self._starter is None or self._starting is not None or self._workers or self.tickets:
            self._unused_since = None
        elif self._unused_since is None:
            self._unused_since = now
        elif now >= self._unused_since + self._times.foreman_idle_s:
            self._unused_since = None
            self._handle(on.ForemanIdle())

    # ---- the starter

    def _start_foreman(self, now: float) -> None:
        try:
            if self._start_method is StartMethod.FORK:
                starter: Starter = ForemanProcess(self._setup)
            else:
                starter = SpawnedWorkers(self._setup, self._times.start_s)
        except (OSError, RuntimeError) as error:
            self._lose_foreman(f"the foreman could not be started: {error}")
            return
        self._starter, self._starting = starter, Patience(starter.pid, self._times.start_s, now)
        import psutil  # noqa: F401  # 27 ms, for the first look at memory: here they are beside the foreman's start

        if starter.channel is None:
            self._serve_starter(0)
            return
        self._selector.register(starter.channel.sock, selectors.EVENT_READ, "starter")
        if starter.output is not None:
            self._selector.register(starter.output.descriptor, selectors.EVENT_READ, "starter output")

    def _lose_foreman(self, detail: str) -> None:
        for worker in list(self._workers.values()):
            for message in worker.channel.drain():
                self._take(worker, message)
        if self._starter is not None and self._starter.output is not None:
            self._starter.output.read()
            detail = f"{detail}\n{self._starter.output.last_lines()}".rstrip()
        kind = PoolEventKind.FOREMAN_LOST if self._foreman_was_up else PoolEventKind.FOREMAN_NOT_STARTED
        self._end_foreman(REAP_S)
        for worker in list(self._workers.values()):
            self._end_attempt(worker, AttemptEnd.LOST)
            self._drop(worker)
        self._tell(kind, "foreman", detail)
        self._handle(on.ForemanLost(detail))

    def _end_foreman(self, wait_s: float) -> None:
        starter, self._starter = self._starter, None
        self._starting = self._pinged_at = self._unused_since = None
        self._foreman_was_up = False
        if starter is not None:
            self._unwatch(starter.channel, starter.output)
            starter.end(wait_s)

    # ---- the selector and the listener

    def _unwatch(self, channel: Channel | None, output: Output | None) -> None:
        for thing in (channel.sock if channel else None, output.descriptor if output else None):
            if thing is not None:
                with contextlib.suppress(KeyError, ValueError):  # not watched any more, or closed
                    self._selector.unregister(thing)

    def _watch_writes(self) -> None:
        """Ask the selector for writability exactly where something waits to be written."""
        channels = [worker.channel for worker in self._workers.values()]
        if self._starter is not None and self._starter.channel is not None:
            channels.append(self._starter.channel)
        for channel in channels:
            with contextlib.suppress(KeyError, ValueError):
                key = self._selector.get_key(channel.sock)
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.has_output else 0)
                if key.events != wanted:
                    self._selector.modify(channel.sock, wanted, key.data)

    def _tell(
        self,
        kind: PoolEventKind,
        subject: str,
        detail: str = "",
        worker_pid: int | None = None,
        in_job: bool = False,
    ) -> None:
        if self._listener is not None:
            try:
                self._listener(PoolEvent(kind, subject, detail, worker_pid, in_job))
            except Exception:
                self._listener = None  # a listener that raises is dropped
