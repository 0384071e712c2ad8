"""A server of another engine that the experiment starts, speaks to over HTTP, and stops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from experiments.clients import ClientPool
from experiments.clock import Clock
from experiments.errors import MissingProgramError, PlanError, TargetDiedError, TargetError
from experiments.records import AxisValue, Calibration
from experiments.targets.base import TargetFacts
from experiments.targets.handing_on import HandsOn
from experiments.targets.launchers import COMMAND, HOST
from experiments.targets.model_folder import ModelFolder, read_model_folder
from experiments.targets.openai_http import HttpTarget
from experiments.targets.programs import found_program, program_of, version_of
from experiments.targets.server_process import ServerProcess, check_port, free_port
from experiments.targets.server_spec import ServerSpec, as_arguments

OWN_SETTINGS = ("model", "launcher", "version")
PORT_ATTEMPTS = 3
_PORT_TAKEN = ("address already in use", "couldn't bind", "eaddrinuse", "address in use")


class ServerTarget(HandsOn):
    """A `Target` whose `open` starts a server and waits until it is ready.

    The flags of the plan are its settings, and may be axes. A server that ended is told by the
    next `reset` or `stats`, so that its trial fails and the next attempt starts a fresh one.
    """

    def __init__(self, spec: ServerSpec, *, clients: int = 0, clock: Clock | None = None) -> None:
        self._spec = spec
        self._processes = clients
        self._clock = clock
        self._process: ServerProcess | None = None
        self._http: HttpTarget | None = None
        self._folders: dict[str, ModelFolder] = {}
        self._log = ""
        self.calibrations: dict[str, Calibration] = {}  # of its clients, by the shape of a load

    @property
    def clients(self) -> ClientPool | None:
        """The processes that send the load, while it is open."""
        return self._http.clients if self._http is not None else None

    def settings(self, engine: Mapping[str, AxisValue]) -> dict[str, AxisValue]:
        """The model, the engine's name and version, and every flag; PlanError for another name."""
        flags = self._spec.all_flags()
        own: dict[str, AxisValue] = {
            "launcher": self._spec.launcher,
            "version": self._version(),
            **{f"env_{name}": value for name, value in self._environment().items()},
        }
        found: dict[str, AxisValue] = {**own, **flags}
        for name, value in engine.items():
            if name not in (*OWN_SETTINGS, *flags, *self._spec.flags) and name not in own:
                raise PlanError(
                    "is no flag of this server that the plan names",
                    where=f"engine: {name}",
                    remedy="Name it under server.flags; an axis may then vary it.",
                )
            found[name] = value
        if not found.get("model"):
            raise PlanError("is missing", where="engine: model", remedy="Give the model folder.")
        return found

    def describe(self, engine: Mapping[str, AxisValue]) -> TargetFacts:
        """From the model folder and the plan; nothing is started."""
        settings = self.settings(engine)
        spec = self._spec
        return self._folder(settings).facts(
            settings,
            accelerator=spec.accelerator,
            remote=True,
            max_positions=spec.max_positions,
            devices=spec.devices,
        )

    def encode(self, engine: Mapping[str, AxisValue], text: str) -> list[int]:
        """By the model folder's tokenizer."""
        return self._folder(self.settings(engine)).need_tokenizer().encode(text)

    def decode(self, engine: Mapping[str, AxisValue], ids: Sequence[int]) -> str:
        """By the model folder's tokenizer."""
        return self._folder(self.settings(engine)).need_tokenizer().decode(ids)

    def check(self, engine: Mapping[str, AxisValue]) -> None:
        """MissingProgramError where the program, or what it loads, is not on this host."""
        self._argv(self.settings(engine), port=self._spec.port or 1)

    def open(self, engine: Mapping[str, AxisValue]) -> TargetFacts:
        """Start the server, wait until it is ready, start the clients.

        TargetDiedError where it ends before, TargetError where it is not ready in time.
        """
        facts = self.describe(engine)
        settings = self.settings(engine)
        for attempt in range(PORT_ATTEMPTS):
            port = self._port()
            try:
                self._start(settings, port)
            except TargetDiedError:
                if self._spec.port is not None or not self._port_was_taken(attempt):
                    raise
                continue
            break
        self._connect(settings, port)
        return facts

    def reset(self) -> None:
        """Post to `reset_path`, where there is one; TargetDiedError where the server ended."""
        self._check_alive()
        super().reset()

    def stats(self) -> dict[str, float]:
        """The server's counters; TargetDiedError where it ended."""
        self._check_alive()
        return super().stats()

    def log_tail(self) -> str:
        """What the server wrote, its first and newest lines."""
        return self._process.log() if self._process is not None else self._log

    def close(self) -> None:
        """End the clients, then the server and everything that it started."""
        http, self._http = self._http, None
        if http is not None:
            http.close()
        process, self._process = self._process, None
        if process is not None:
            process.stop()
            self._log = process.log()

    @property
    def _open(self) -> HttpTarget:
        if self._http is None:
            raise TargetError("the server is not open")
        return self._http

    def _start(self, settings: Mapping[str, AxisValue], port: int) -> None:
        spec = self._spec
        argv = self._argv(settings, port=port)
        self._process = ServerProcess(argv, self._environment(), stop_s=spec.stop_s)
        ready = spec.ready_path or spec.record.ready_path
        try:
            self._process.wait_ready(f"http://{HOST}:{port}{ready}", spec.start_s)
        except BaseException:
            self.close()
            raise

    def _connect(self, settings: Mapping[str, AxisValue], port: int) -> None:
        folder = self._folder(settings)
        tokenizer = str(folder.path) if folder.tokenizer is not None else None
        speaks = self._spec.speaks(name=folder.path.name, port=port, tokenizer=tokenizer)
        self._http = HttpTarget(speaks, clients=self._processes, clock=self._clock)
        try:
            self._http.open({})
        except BaseException:
            self.close()
            raise

    def _argv(self, settings: Mapping[str, AxisValue], *, port: int) -> list[str]:
        spec, launcher = self._spec, self._spec.record
        folder = self._folder(settings)
        places = {
            "program": str(self._program()),
            "model": str(folder.path),
            "weights": self._weights(folder),
            "name": folder.path.name,
            "host": HOST,
            "port": str(port),
        }
        flags = {n: settings[n] for n in spec.all_flags() if settings.get(n) is not None}
        argv = [_filled(part, places) for part in launcher.argv]
        if spec.launcher == COMMAND:
            argv[0] = places["program"]
        return [*argv, *as_arguments(flags)]

    def _weights(self, folder: ModelFolder) -> str:
        launcher = self._spec.record
        template = self._spec.weights or launcher.weights
        if template is None:
            return str(folder.path)
        path = Path(template.replace("{model}", str(folder.path))).expanduser()
        if not path.exists():
            convert = (launcher.convert or "").replace("{model}", str(folder.path))
            raise MissingProgramError(
                f"{path}, which {launcher.name} loads, is not there.",
                where="server.weights",
                remedy=f"Make it: {convert}." if convert else "Correct the path.",
            )
        return str(path.absolute())

    def _program(self) -> Path:
        spec = self._spec
        if spec.command is not None:
            named = spec.program or spec.command[0]
            return found_program(named, "server.command", "Correct its first word.")
        return program_of(spec.record, spec.program)

    def _version(self) -> str | None:
        """None for a program that is missing, which `check` tells, or that says nothing."""
        try:
            return version_of(self._spec.record, self._program())
        except MissingProgramError:
            return None

    def _environment(self) -> dict[str, str]:
        return {**self._spec.record.environment, **self._spec.environment}

    def _folder(self, settings: Mapping[str, AxisValue]) -> ModelFolder:
        model = str(settings["model"])
        if model not in self._folders:
            self._folders[model] = read_model_folder(model)
        return self._folders[model]

    def _port(self) -> int:
        if self._spec.port is None:
            return free_port()
        check_port(self._spec.port)
        return self._spec.port

    def _port_was_taken(self, attempt: int) -> bool:
        """Between our look and the server's own, somebody else took it."""
        said = self._log.casefold()
        return attempt + 1 < PORT_ATTEMPTS and any(words in said for words in _PORT_TAKEN)

    def _check_alive(self) -> None:
        if self._process is not None:
            self._process.check_alive()


def _filled(part: str, places: Mapping[str, str]) -> str:
    for name, value in places.items():
        part = part.replace(f"{{{name}}}", value)
    return part


def server_factory(spec: ServerSpec, clients: int) -> Callable[[], ServerTarget]:
    """Makes targets that start that server, each with so many client processes."""
    return lambda: ServerTarget(spec, clients=clients)
