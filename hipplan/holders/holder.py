"""The holder: a process that keeps descriptors of a layout's memory, without a device context, for others to attach.

It has one thread and one selector. It starts a filler, one at a time, for all work that needs a device: to make and
fill memory, to save its bytes and to restore them. Clients request the status, attach, replace the memory, have it
sleep or wake, and end the holder.
"""

from __future__ import annotations

import errno
import os
import selectors
import time
from collections.abc import Callable, Mapping, Sequence

from hipplan.errors import ExitCode, HeldError, reason_of
from hipplan.holders import requested
from hipplan.holders.clients import FILLER_LIMITS, REPLACED, Client, Clients, bug, in_use, refusal, refused
from hipplan.holders.command_line import CommandLine
from hipplan.holders.filler_process import Command, FillerRunner
from hipplan.holders.generations import Generation, Generations, SavedBytes, bytes_by_uuid
from hipplan.holders.log import Log
from hipplan.holders.names import Name
from hipplan.holders.signals import EndSignals
from hipplan.holders.tasks import FillTask, ReplaceTask, SaveTask, Task, wake_task
from hipplan.holders.verifying import verify_answer
from hipplan.processes.packets import Message
from hipplan.program.backups import DROP

_CLOSE_S = 2.0
"""How long a holder that ends sends answers."""


class Holder:
    """The holder of a name."""

    def __init__(
        self, name: Name, command: Command, access: str, on_ready: Callable[[], None], error_stream: int | None = None
    ) -> None:
        """command: starts a filler. access: the most that attached processes may do: r, rw, or plan: the plan's right
        for each object. on_ready: called when all memory is filled. error_stream: of the process that waits for that;
        failures of which it would not know otherwise are written to it."""
        self._name = name
        self._access = access
        self._on_ready = on_ready
        self._log = Log(name.name, error_stream)
        self._since = time.time()
        self._generations = Generations()
        self._task_client: Client | None = None
        """The client that requested the task under way."""
        self._failure = ""
        """Why the last task failed; empty after a success."""
        self._sleep_client: Client | None = None
        """The client that requested a sleep, until no process is attached and the sleep begins."""
        self._down_clients: list[Client] = []
        """Clients that requested the end and wait for it."""
        self._signals = EndSignals(lambda: self._fillers.kill())  # the second one: without a roll back
        self._exit_code: int | None = None
        """The exit code of this process; None while it serves."""
        self._selector = selectors.DefaultSelector()
        self._fillers = FillerRunner(command, self._selector, self._is_task_wanted, self._on_task_end)
        self._clients = Clients(
            name.listening,
            on_request=self._on_request,
            on_attached=self._notify_replaced,
            on_deadline=self._on_deadline,
            on_disconnect=self._on_disconnect,
        )
        self._selector.register(self._clients, selectors.EVENT_READ, self._clients.serve)

    def run(self, command_line: CommandLine, streams: Sequence[int]) -> int:
        """Fill the memory, then serve clients until `down` or a signal. Returns the exit code.

        command_line, streams: of the first filler.
        """
        with self._signals.caught(self._selector):
            try:
                self._start_first_fill(command_line, streams)
                while self._exit_code is None:
                    for key, _ in self._selector.select(self._clients.wait_s()):
                        if key.fd in self._selector.get_map():  # an earlier event may have unregistered it
                            key.data()
                    self._tick()
                return self._exit_code
            finally:
                self._close()

    def _tick(self) -> None:
        """Do what is due, whether or not there was an event."""
        self._clients.serve()
        self._close_replaced()
        client = self._sleep_client
        if client is not None and not self._blocking_clients(client) and self._is_present(client):
            self._sleep_client = None
            self._serve(client, self._start_sleep)
        ending = [client for client in self._down_clients if not self._blocking_clients(client)]
        may_end = self._signals.first or any(self._is_present(client) for client in ending)
        if self._exit_code is None and may_end:
            if self._fillers.state:
                self._fillers.stop()
            else:
                self._exit_code = 128 + self._signals.first if self._signals.first else ExitCode.OK

    # Tasks and generations

    def _close_replaced(self) -> None:
        """Free replaced memory that is not being sent to a client."""
        self._generations.close_replaced({client.generation for client in self._clients if client.exchange is not None})

    def _start_first_fill(self, command_line: CommandLine, streams: Sequence[int]) -> None:
        try:
            self._fillers.start(FillTask(self._generations, command_line, {}), streams)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
                self._exit_code = int(ExitCode.MACHINE)
                raise  # the command says what to do
            self._failure, self._exit_code = f"the filler cannot be started: {error}", int(ExitCode.ROLLED_BACK)
            self._log.failure(self._failure)

    def _start_task(self, client: Client, make: Callable[[], Task]) -> None:
        """Start a filler for a client's request; the client is answered when the filler has ended."""
        try:
            self._fillers.start(make(), client.descriptors)
            self._task_client = client
        except OSError as error:
            self._clients.answer(client, refusal("HP455", "no filler can be started", reason_of(error), FILLER_LIMITS))

    def _on_task_end(self, task: Task, code: int, report: str) -> None:
        """Log and answer the result of a filler. code: 0, or its exit code after a failure, negative for a signal."""
        client, self._task_client = self._task_client, None
        self._failure = f"{task.state} failed: {report}" if code else ""
        log = self._log.failure if code < 0 else self._log.write  # a filler that ends by itself has reported its error
        log(self._failure or report)
        if code == 0 and task.state == "filling":
            self._log.filled()
            self._on_ready()
        code = code if code >= 0 else int(ExitCode.ROLLED_BACK)
        if client is not None:
            if code:
                self._clients.answer(client, {"failed": code, "why": report})
            else:
                self._close_replaced()  # what the answer says is done
                self._serve(client, self._send_status)
        elif self._generations.current is None:
            self._exit_code = 128 + self._signals.first if self._signals.first else code
        for other in self._clients:
            if other.generation is not None:
                self._notify_replaced(other)
            elif other.is_waiting and other.request.want in ("family", "attach"):
                self._on_read(other)  # it waits since the task began

    def _notify_replaced(self, client: Client) -> None:
        """Notify an attached client if its generation is not the current one."""
        if client.exchange is None and client.generation is not self._generations.current:
            client.notify(REPLACED)

    def _generations_in_use(self) -> list[Generation]:
        """The current generation and those to which clients are attached, by number."""
        used = {client.generation for client in self._clients} | {self._generations.current}
        return sorted((generation for generation in used if generation), key=lambda generation: generation.number)

    @property
    def _state(self) -> str:
        if self._down_clients or self._signals.first:
            return "ending"
        if self._sleep_client is not None:
            return SaveTask.state
        return self._fillers.state or ("ready" if self._generations.backup is None else "asleep")

    def status(self) -> Message:
        """Returns what `ps` shows."""
        return {
            "name": self._name.name,
            "pid": os.getpid(),
            "since": self._since,
            "state": self._state,
            "filled": self._fillers.progress,
            "asleep": None if self._generations.backup is None else self._generations.backup.status(),
            "access": self._access,
            "context_bytes": 0,  # descriptors need no context, so no device memory
            "log": self._name.log,
            "failed": self._failure,
            "generations": [generation.status() for generation in self._generations_in_use()],
            "attached": [client.status() for client in self._clients.attached()],
        }

    # Requests

    def _on_request(self, client: Client) -> None:
        assert client.message is not None
        try:
            client.requested = requested.read(client.message, len(client.descriptors))
        except ValueError as error:
            summary = f"the holder '{self._name.name}' does not understand this request"
            self._clients.answer(client, refusal("HP452", summary, str(error)))
        else:
            self._on_read(client)
        if client is not self._sleep_client:
            client.close_descriptors()

    def _on_read(self, client: Client) -> None:
        """Begin to do what a client requests, or to wait for it."""
        handlers: Mapping[requested.Want, Callable[[Client], None]] = {
            "status": self._send_status,
            "family": self._handle_family,
            "attach": self._handle_attach,
            "down": self._handle_down,
            "replace": self._handle_replace,
            "sleep": self._handle_sleep,
            "wake": self._handle_wake,
            "layouts": self._handle_verify,
            "verify": self._handle_verify,
        }
        if self._is_present(client):
            self._serve(client, handlers[client.request.want])

    def _serve(self, client: Client, handler: Callable[[Client], None]) -> None:
        """Call a handler, which may refuse with a HeldError. A bug in it ends this request, and not the holder."""
        try:
            handler(client)
        except HeldError as error:
            self._clients.answer(client, refused(error.diagnostics[0]))
        except Exception as error:
            self._log.bug(error)
            client.detach()
            if client in self._down_clients:
                self._down_clients.remove(client)
            self._clients.answer(client, bug(self._name.name, error))

    def _is_present(self, client: Client) -> bool:
        """Whether a client still waits for what is about to begin; it is disconnected if it does not."""
        if not client.has_left:
            return True
        request = f"request {client.request.number} of process {client.pid} ({client.request.want})"
        self._log.write(f"{request} is not begun: the process does not wait any more")
        self._clients.disconnect(client)
        return False

    def _is_task_wanted(self) -> bool:
        return self._task_client is None or not self._task_client.has_left

    def _on_disconnect(self, client: Client) -> None:
        """Cancel what the client waits for: its `down`, its sleep, or its task."""
        if client in self._down_clients:
            self._down_clients.remove(client)
        if client is self._sleep_client:
            self._sleep_client = None
        if client is self._task_client:
            self._task_client = None
            self._fillers.stop()

    def _on_deadline(self, client: Client) -> None:
        """Disconnect a slow client; refuse a `down` or sleep for which processes did not detach in time; kill a filler
        that does not end for a `down` with force."""
        if client is not self._sleep_client and client not in self._down_clients:
            self._clients.disconnect(client)
        elif not self._blocking_clients(client):
            client.deadline = None
            if client.request.force:
                self._fillers.kill()
        else:
            self._on_disconnect(client)
            self._refuse_in_use(client)
            client.close_descriptors()

    def _send_status(self, client: Client) -> None:
        self._clients.answer(client, {"status": self.status()})

    def _refuse(self, client: Client, code: str, about: str, why: str = "", hint: str = "") -> None:
        self._clients.answer(client, refusal(code, f"the holder '{self._name.name}' {about}", why, hint))

    def _handle_attach(self, client: Client) -> None:
        """Attach a client, or refuse it. While memory is filled or woken it waits, and while it is replaced for the
        right to write: see _on_task_end()."""
        current = self._generations.current
        if client.request.access == "rw" and self._access != "rw":
            hint = "leave access out and write attached: rw in the plan where you write, or: hipplan up --access rw"
            self._refuse(client, "HP454", "does not allow write access to all of its memory", hint=hint)
        elif self._down_clients:
            self._refuse(client, "HP453", "is ending")
        elif self._state in ("sleeping", "asleep"):
            about = "is asleep" if self._state == "asleep" else "is going to sleep"
            self._refuse(client, "HP441", about, hint=f"hipplan wake {self._name.name}")
        elif current is not None and current.backup is None:
            access = "r" if self._access == "r" else client.request.access
            if access == "plan" and not current.description["writable"]:
                access = "r"
            if current.gives_more(access) and self._state == ReplaceTask.state:
                return  # who replaces has not consented to lose what this client may write
            self._attach(client, current, access)

    def _attach(self, client: Client, current: Generation, access: str) -> None:
        answer = current.described(self._name.name, access, client.request.sees)
        client.attach(current, access)
        answer |= {"name": self._name.name, "generation": current.number, "pid": os.getpid(), "access": access}
        self._clients.answer(client, answer | {"allows": self._access}, current.descriptors)

    def _handle_family(self, client: Client) -> None:
        """Answer with the kind of runtime that made the memory, once there is any."""
        if (current := self._generations.current) is not None:
            self._clients.answer(client, {"family": current.description["family"]})

    def _handle_verify(self, client: Client) -> None:
        """Answer `hipplan verify`."""
        reads_back = client.request.want == "verify"
        self._clients.answer(client, verify_answer(self._generations.current, reads_back=reads_back))

    def _handle_down(self, client: Client) -> None:
        request = client.request
        if self._clients.attached() and request.wait_s == 0 and not request.force:
            self._refuse_in_use(client)
        else:
            limit_s = request.timeout_s if request.force else request.wait_s
            client.deadline = None if limit_s is None else time.monotonic() + limit_s
            self._down_clients.append(client)

    def _blocking_clients(self, client: Client) -> list[Client]:
        """Attached clients that must detach before a `down` or sleep can begin."""
        request = client.request
        if request.want == "down":
            return [] if request.force else self._clients.attached()
        return [other for other in self._clients.attached() if other.generation is self._generations.current]

    def _refuse_in_use(self, client: Client) -> None:
        want = client.request.want
        self._clients.answer(client, in_use(self._name.name, self._blocking_clients(client), want))

    def _accepts_change(self, client: Client) -> bool:
        """Whether a task may start now; if not, the request is refused."""
        if self._state in ("ready", "asleep"):
            return True
        self._refuse(client, "HP453", f"is {self._state}", hint="try again when it is ready")
        return False

    def _handle_replace(self, client: Client) -> None:
        request, current = client.request, self._generations.current
        assert request.command_line is not None
        if self._accepts_change(client) and current is not None:
            command_line, program = request.command_line, current.description["program"]
            replaces = {"program": program, "given": current.given, "access": self._access, "lose": [*request.lose]}
            in_use_now = bytes_by_uuid(self._generations_in_use())
            self._start_task(client, lambda: ReplaceTask(self._generations, command_line, in_use_now, replaces))

    def _handle_sleep(self, client: Client) -> None:
        request, current = client.request, self._generations.current
        keep, wait_s = request.keep, request.wait_s
        if not self._accepts_change(client) or current is None:
            return
        if current.backup is not None and current.backup.place == keep:
            self._send_status(client)
        elif current.backup is not None:
            where = "in host memory" if keep == DROP else "dropped"
            self._refuse(client, "HP441", "is asleep", f"its bytes are {where}", f"hipplan wake {self._name.name}")
        elif keep == DROP and (why := current.why_not_refillable(self._access)):
            self._refuse(client, "HP440", "cannot sleep without its bytes", why, "--keep host keeps them")
        elif self._blocking_clients(client) and wait_s == 0:
            self._refuse_in_use(client)
        else:
            client.deadline = None if wait_s is None else time.monotonic() + wait_s
            self._sleep_client = client

    def _start_sleep(self, client: Client) -> None:
        """Free the memory, after a filler has saved its bytes where they are kept."""
        current = self._generations.current
        assert current is not None
        client.deadline = None
        request = client.request
        if request.keep == DROP:
            current.sleep(SavedBytes(DROP))
            self._log.write(f"{current.description['plan']}: asleep, without its bytes")
            self._send_status(client)
        else:
            self._start_task(client, lambda: SaveTask(current, request.options))
        client.close_descriptors()

    def _handle_wake(self, client: Client) -> None:
        if not self._accepts_change(client):
            return
        if self._generations.backup is None:
            self._send_status(client)
        else:
            in_use_now = bytes_by_uuid(self._generations_in_use())
            self._start_task(client, lambda: wake_task(self._generations, in_use_now, client.request.options))

    # The end

    def _close(self) -> None:
        """Release everything, log the end, and answer the clients that wait for it."""
        code = ExitCode.BUG if self._exit_code is None else self._exit_code
        self._fillers.kill()  # a filler runs here only after a bug in the holder
        freed = [generation.freed_by_close for generation in self._generations_in_use()]
        clients, current = [*self._clients.attached()], self._generations.current
        stays = any(client.generation is current for client in clients)
        answer = {"given_back": freed[-1] if freed else {}, "attached": [client.status() for client in clients]}
        self._generations.close()
        self._selector.close()
        self._log.write(f"ended with code {int(code)}")
        is_ended_by_down = bool(self._down_clients) and code == ExitCode.TERMINATED  # during the fill
        self._name.close(keep_log=code != ExitCode.OK and not is_ended_by_down and not self._log.is_awaited)
        self._clients.close(self._down_clients, answer | {"waits_for_attached": stays}, _CLOSE_S)
