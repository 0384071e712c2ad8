import asyncio
import threading
import time
from dataclasses import replace

import pytest

from engine.config import EngineConfig
from engine.core import Engine
from engine.errors import EngineError, RequestError
from engine.request import FinishReason, Request, SamplingParams
from engine.streaming import AsyncEngine
from tests.fakes.hash_model import HashSource
from tests.fakes.null_device import erratic_engine
from tests.fakes.sequential import expected_text

GREEDY = SamplingParams(temperature=0.0, max_tokens=10, ignore_eos=True)
ENDLESS = SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True)


def serving():
    config = EngineConfig(model="hash", dtype="float64", block_tokens=4, replay_mode="off")
    return Engine(config, source=HashSource())


def slow_serving():
    """Steps slow enough that a request is still running when the test leaves it."""
    target = serving()
    step = target.step

    def slow():
        time.sleep(0.03)
        return step()

    target.step = slow
    return target


@pytest.fixture
def engine():
    engine = AsyncEngine(serving())
    yield engine
    engine.close()


def ask(name, prompt, params=GREEDY):
    return Request(request_id=name, prompt_token_ids=tuple(prompt), sampling=params)


async def read(engine, request):
    return [output async for output in engine.stream(request)]


def test_streams_run_side_by_side_and_end_with_a_finished_output(engine):
    prompts = {"a": [5], "b": [6, 7, 8], "c": [9] * 20}

    async def everything():
        return await asyncio.gather(*(read(engine, ask(n, p)) for n, p in prompts.items()))

    for prompt, outputs in zip(prompts.values(), asyncio.run(everything()), strict=True):
        said = [token for output in outputs for token in output.token_ids]
        assert said == expected_text(prompt, GREEDY)[0]
        assert [o.finished for o in outputs] == [False] * (len(outputs) - 1) + [True]


def test_a_refused_request_raises_and_the_next_is_served(engine):
    async def both():
        with pytest.raises(RequestError, match="empty"):
            await read(engine, ask("a", []))
        return await read(engine, ask("a", [5]))

    assert asyncio.run(both())[-1].finish_reason == FinishReason.LENGTH


@pytest.mark.parametrize("way", ["aclose", "cancel"])
def test_leaving_a_stream_aborts_its_request(way):
    target = slow_serving()
    aborted = threading.Event()
    abort = target.abort

    def watched(request_id):
        aborted.set()
        return abort(request_id)

    target.abort = watched
    engine = AsyncEngine(target)

    async def leave():
        stream = engine.stream(ask("a", [5], ENDLESS))
        await anext(stream)
        if way == "aclose":
            await stream.aclose()
            return
        task = asyncio.create_task(read(engine, ask("b", [5], ENDLESS)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await stream.aclose()

    asyncio.run(leave())
    assert aborted.wait(10)
    engine.close()


def test_a_step_that_raises_ends_open_streams_and_later_ones_are_served():
    target = serving()
    step, calls = target.step, []

    def broken():
        calls.append(1)
        if len(calls) == 2:
            raise ValueError("a bug")
        return step()

    target.step = broken
    engine = AsyncEngine(target)

    async def both():
        with pytest.raises(EngineError, match="a bug"):
            await read(engine, ask("a", [5]))
        return await read(engine, ask("b", [5]))

    outputs = asyncio.run(both())
    assert [t for o in outputs for t in o.token_ids] == expected_text([5], GREEDY)[0]
    engine.close()


def test_closing_ends_open_streams():
    engine = AsyncEngine(slow_serving())

    async def close_meanwhile():
        stream = engine.stream(ask("a", [5], ENDLESS))
        await anext(stream)
        await asyncio.to_thread(engine.close)
        with pytest.raises(EngineError, match="closed"):
            async for _ in stream:
                pass

        with pytest.raises(EngineError, match="closed"):
            await read(engine, ask("b", [5]))

    # Outputs that came before the close are delivered before the error.
    asyncio.run(close_meanwhile())


def test_parameters_of_the_wrong_type_end_their_own_stream_only(engine):
    params = SamplingParams(stop_token_ids=5, max_tokens=4)

    async def both():
        with pytest.raises(RequestError, match="stop_token_ids"):
            await read(engine, ask("a", [5], params))
        return await read(engine, ask("b", [5]))

    outputs = asyncio.run(asyncio.wait_for(both(), 20))
    assert [t for o in outputs for t in o.token_ids] == expected_text([5], GREEDY)[0]


def test_a_request_whose_adding_breaks_ends_its_own_stream_with_what_broke():
    target = serving()
    add = target.add_request

    def broken(request):
        if request.request_id == "a":
            raise ValueError("a bug in adding")
        add(request)

    target.add_request = broken
    engine = AsyncEngine(target)

    async def both():
        with pytest.raises(ValueError, match="a bug in adding"):
            await read(engine, ask("a", [5]))
        return await read(engine, ask("b", [5]))

    assert asyncio.run(asyncio.wait_for(both(), 20))[-1].finished
    engine.close()


class _ThreadEnds(BaseException):
    pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_takes_its_streams_with_it():
    target = serving()

    def end():
        raise _ThreadEnds

    target.step = end
    engine = AsyncEngine(target)

    async def both():
        for name in "ab":
            with pytest.raises(EngineError, match="closed"):
                await read(engine, ask(name, [5]))

    asyncio.run(asyncio.wait_for(both(), 20))
    engine.close()


def test_a_step_still_in_flight_ends_though_no_one_waits_for_it():
    full, _ = expected_text([5], GREEDY)
    target = erratic_engine(
        EngineConfig(model="hash", dtype="float64", block_tokens=4, replay_mode="off"),
        HashSource(),
        delays=1,
    )
    engine = AsyncEngine(target)
    params = replace(GREEDY, stop_token_ids=(full[4],))
    asyncio.run(read(engine, ask("a", [5], params)))
    for _ in range(500):
        if not target.has_unfinished():
            break
        time.sleep(0.01)
    engine.close()
    assert target.stats().blocks_used == 0
