"""A model server that somebody else started, spoken to over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import httpx

from engine.environment import read_secret
from engine.request import Request, RequestId
from experiments.client_process import ConnectTo
from experiments.clients import ClientPool
from experiments.clock import Clock, SystemClock
from experiments.errors import PlanError, TargetError, WorkloadError
from experiments.records import AxisValue, Calibration
from experiments.targets.base import Received, TargetFacts
from experiments.targets.http_client import CONNECT_S, HttpClient, request_headers
from experiments.targets.http_json import dig, items, text
from experiments.targets.http_lanes import Connect, Lanes, connector
from experiments.targets.http_spec import DECLARE, NOT_OURS, HttpSpec
from experiments.targets.http_tokenizer import ClientTokenizer
from experiments.targets.prometheus import counters


class HttpTarget:
    """A `Target` on a running server. `open` starts `clients` processes that send its load.

    With `clients` 0 it sends by itself, from the thread that polls it; so does each of those
    processes. `connect` replaces the network.
    """

    def __init__(
        self,
        spec: HttpSpec,
        *,
        clients: int = 0,
        clock: Clock | None = None,
        connect: Connect | None = None,
    ) -> None:
        self._spec = spec
        self._processes = clients
        self._clock = clock if clock is not None else SystemClock()
        self._connect = connect
        self._tokenizer: ClientTokenizer | None = None
        self._client: HttpClient | None = None
        self.clients: ClientPool | None = None
        self.calibrations: dict[str, Calibration] = {}  # of its clients, by the shape of a load

    def settings(self, engine: Mapping[str, AxisValue]) -> dict[str, AxisValue]:
        """What the plan says of the server; PlanError for any engine field."""
        spec = self._spec
        own: dict[str, AxisValue] = {
            "model": spec.model,
            "url": spec.url,
            "api": str(spec.api),
            **{f"declared_{name}": value for name, value in spec.declared.items()},
        }
        for name, value in engine.items():
            if name not in own or own[name] != value:
                raise PlanError(NOT_OURS, where=f"engine: {name}", remedy=DECLARE)
        return own

    def describe(self, engine: Mapping[str, AxisValue]) -> TargetFacts:
        """From the plan and the tokenizer; nothing is asked of the server."""
        spec = self._spec
        configuration = self.settings(engine)
        if not spec.sends_ids:
            self._need_tokenizer("prompts are written as text")
        tokenizer = self._tokens()
        return TargetFacts(
            model=spec.model,
            fingerprint=None,
            configuration=configuration,
            vocab_size=tokenizer.vocab_size if tokenizer else spec.vocab_size,
            eos_token_id=None,
            reserved_token_ids=tokenizer.special_ids if tokenizer else (),
            window=None,
            draft_block=None,
            can_truncate=None,
            max_positions=spec.max_positions,
            devices=spec.devices,
            accelerator=spec.accelerator,
            random_weights=False,
            tokenizer_hash=tokenizer.hash if tokenizer else None,
            renders_chat=not spec.api.takes_ids,
            remote=True,
        )

    def encode(self, engine: Mapping[str, AxisValue], text: str) -> list[int]:
        """By the plan's tokenizer; PlanError without one.

        WorkloadError for special tokens where prompts go as text: they would not arrive.
        """
        del engine
        tokenizer = self._need_tokenizer("the workload is text")
        ids = tokenizer.encode(text)
        if not self._spec.sends_ids and not set(ids).isdisjoint(tokenizer.special_ids):
            raise WorkloadError(
                "holds special tokens of the model, and a server that takes text adds its own",
                where=f"http.api: {self._spec.api}",
                remedy="Use api: completions, which takes ids, or prompts without such tokens.",
            )
        return ids

    def open(self, engine: Mapping[str, AxisValue]) -> TargetFacts:
        """Ask the server whether it is there and serves the model; start the clients."""
        facts = self.describe(engine)
        self.greet()
        if self._processes and self.clients is None:
            self.clients = ClientPool(client_factory(self._spec), self._processes)
        return facts

    def greet(self) -> None:
        """Ask the server whether it is there and serves the model; TargetError where it does not.

        Any answer short of a server error is one; a list of models must hold ours.
        """
        answer = self._call("GET", self._spec.ready_path, fails_from=500)
        try:
            listed: object = answer.json() if answer.is_success else None
        except ValueError:
            return
        served = [text(dig(model, "id")) for model in items(dig(listed, "data"))]
        if any(served) and self._spec.model not in served:
            raise TargetError(
                f"the server serves {', '.join(served)}",
                where=f"http.model: {self._spec.model}",
                remedy="Name one of these.",
            )

    def connect(self) -> None:
        """Open a first connection, so that no request waits for what is loaded with it."""
        self._own_client().connect()

    def submit(self, request: Request) -> None:
        """Have it written with the next `poll`."""
        ids = list(request.prompt_token_ids)
        tokenizer = self._tokens()
        if self._spec.sends_ids:
            prompt: str | list[int] = ids
        else:
            prompt = self._need_tokenizer("prompts are written as text").decode(ids)
        self._own_client().submit(request, prompt, tokenizer)

    def poll(self, timeout_s: float) -> Sequence[Received]:
        """What came over all connections."""
        return self._own_client().poll(timeout_s)

    def abort(self, request_id: RequestId) -> None:
        """Close its connection."""
        self._own_client().abort(request_id)

    def reset(self) -> None:
        """Post to `reset_path`, where the plan names one."""
        if self._spec.reset_path is not None:
            self._call("POST", self._spec.reset_path)

    def replica_of(self, request_id: RequestId) -> int | None:
        """The server does not say."""
        del request_id
        return None

    def stats(self) -> dict[str, float]:
        """The counters under `metrics_path`; none where the plan names no such path."""
        path = self._spec.metrics_path
        return counters(self._call("GET", path).text) if path is not None else {}

    def log_tail(self) -> str:
        """The server's log is not ours to read."""
        return ""

    def close(self) -> None:
        """End the clients and close the connections; the server goes on."""
        pool, self.clients = self.clients, None
        if pool is not None:
            pool.close()
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _tokens(self) -> ClientTokenizer | None:
        if self._tokenizer is None and self._spec.tokenizer is not None:
            self._tokenizer = ClientTokenizer(self._spec.tokenizer)
        return self._tokenizer

    def _need_tokenizer(self, why: str) -> ClientTokenizer:
        tokenizer = self._tokens()
        if tokenizer is None:
            raise PlanError(
                f"is missing, and {why}",
                where="http.tokenizer",
                remedy="Give the tokenizer.json of the model, or use api: completions with ids.",
            )
        return tokenizer

    def _own_client(self) -> HttpClient:
        if self._client is None:
            spec = self._spec
            lanes = Lanes(self._connect or connector(spec.url))
            self._client = HttpClient(spec, self._headers(), self._clock.now_ns, lanes)
        return self._client

    def _headers(self) -> dict[str, str]:
        name = self._spec.key_env
        return request_headers(self._spec, read_secret(name) if name is not None else None)

    def _call(self, method: str, path: str, *, fails_from: int = 400) -> httpx.Response:
        where = self._spec.url + path
        try:
            answer = httpx.request(
                method, where, headers=self._headers(), timeout=CONNECT_S, trust_env=False
            )
        except httpx.HTTPError as error:
            raise TargetError(
                f"the server does not answer: {error or type(error).__name__}",
                where=where,
                remedy="Start it, or correct http.url.",
            ) from error
        if answer.status_code >= fails_from:
            raise TargetError(f"answers HTTP {answer.status_code}", where=where)
        return answer


def _client_of(spec: HttpSpec, url: str | None) -> HttpTarget:
    """What sends in a client process; a key is for the plan's own server alone."""
    if url is not None:
        spec = spec.model_copy(update={"url": url, "key_env": None, "headers": {}})
    target = HttpTarget(spec)
    target.connect()
    return target


def client_factory(spec: HttpSpec) -> ConnectTo:
    """Makes what sends in a client process."""
    return partial(_client_of, spec)


def http_factory(spec: HttpSpec, clients: int) -> Callable[[], HttpTarget]:
    """Makes targets on that server, each with so many client processes once it is open."""
    return partial(HttpTarget, spec, clients=clients)
