"""What a client reads from servers, on a clock that only the test moves."""

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ConfigError
from experiments.clock import VirtualClock
from experiments.errors import PlanError, TargetError, WorkloadError
from experiments.measurement import decode_tokens, e2e_s, gaps, succeeded, tpot_s, ttfo_s, ttft_s
from experiments.records import ChunkKind, TokenSource
from experiments.targets.http_answers import Usage, event, whole
from experiments.targets.http_apis import request_body
from experiments.targets.http_spec import Api, HttpSpec
from experiments.targets.http_tokenizer import ClientTokenizer
from experiments.targets.openai_http import HttpTarget
from tests.fakes.openai_server import (
    CONTENT,
    REASONING,
    TOKENIZER,
    TOOL,
    Say,
    acts,
    broken,
    flown,
    reads_of,
    request,
    scripted,
    serving,
    spec,
)

CHAT = Api.CHAT_COMPLETIONS
ALL = pytest.mark.parametrize("api", list(Api))
PLAIN = (Api.COMPLETIONS, Api.LLAMA_CPP)  # text alone
TYPED = pytest.mark.parametrize("api", [api for api in Api if api not in PLAIN])


def record_of(reads, *, sent=None, status=200, content_type="text/event-stream", **fields):
    clock = VirtualClock()
    target = scripted(clock, reads, status=status, content_type=content_type, **fields)
    [record] = flown(target, clock, sent or request())
    target.close()
    return record


def streamed(says, api=CHAT, options=None, **fields):
    return record_of(reads_of(acts(api, says, **(options or {}))), api=api, **fields)


def seen(record):
    return [(round(chunk.time_s, 9), chunk.tokens, chunk.kind) for chunk in record.chunks]


@ALL
def test_every_api_gives_the_same_times_and_counts(api):
    record = streamed([Say(0.5, 2), Say(0.1, 3), Say(0.2, 1)], api)
    assert succeeded(record)
    assert seen(record) == [(0.5, 2, CONTENT), (0.6, 3, CONTENT), (0.8, 1, CONTENT)]
    assert (record.output_tokens, record.server_output_tokens, record.server_prompt_tokens) == (
        6,
        6,
        5,
    )
    assert record.finish_reason == "length"
    assert (ttft_s(record), e2e_s(record)) == pytest.approx((0.5, 0.8))


@TYPED
def test_reasoning_and_tools_are_tokens_of_their_own_kind(api):
    record = streamed([Say(0.5, 4, REASONING), Say(0.3, 1), Say(0.1, 2, TOOL)], api)
    assert [chunk.kind for chunk in record.chunks] == [REASONING, CONTENT, TOOL]
    assert ttft_s(record) == pytest.approx(0.5)
    assert ttfo_s(record) == pytest.approx(0.8)


def test_an_answer_of_reasoning_alone_has_a_ttft_and_no_ttfo():
    record = streamed([Say(0.5, 4, REASONING)])
    assert ttft_s(record) == pytest.approx(0.5)
    assert ttfo_s(record) is None


def test_reasoning_that_is_sent_under_both_of_its_names_is_counted_once():
    delta = {"reasoning": " a b", "reasoning_content": " a b"}
    data = event({"choices": [{"delta": delta, "finish_reason": "stop"}]}) + b"data: [DONE]\n\n"
    assert record_of([(0.5, data)], api=CHAT).output_tokens == 2


def test_a_role_alone_is_no_token():
    role = event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
    null = event({"choices": [{"delta": {"role": "assistant", "content": None}}]})
    says = reads_of(acts(CHAT, [Say(0.4, 1), Say(0.1, 1)]))
    record = record_of([(0.2, role), (0.1, null), *says], api=CHAT)
    assert ttft_s(record) == pytest.approx(0.7)


def test_done_and_usage_come_after_the_end():
    script = reads_of(acts(CHAT, [Say(0.5, 1), Say(0.1, 1)], end=False))
    usage = event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})
    record = record_of([*script, (0.3, usage), (0.3, b"data: [DONE]\n\n")], api=CHAT)
    assert e2e_s(record) == record.ended_s == pytest.approx(0.6)
    assert record.closed_s == pytest.approx(1.2)
    assert record.output_tokens == 2


def test_tokens_that_a_parser_holds_back_arrive_when_usage_says_so():
    held = [Say(0.5, 2, text=""), Say(0.1, 2, text=""), Say(0.1, 3, text=" a b c")]
    assert seen(streamed(held)) == [(0.5, 2, CONTENT), (0.6, 2, CONTENT), (0.7, 3, CONTENT)]


def test_the_last_usage_sets_the_count_where_an_empty_chunk_brings_it():
    says = [Say(0.5, 1), Say(0.1, 3)]
    record = streamed(says, options={"counted": False}, sent=request(tokens=100))
    assert record.output_tokens == record.server_output_tokens == 4
    assert record.requested_output_tokens == 100


def test_token_ids_of_the_server_are_counted_and_kept_for_comparison():
    record = streamed([Say(0.5, 2), Say(0.1, 3)], options={"counted": False, "ids": True})
    assert record.token_source is TokenSource.TOKEN_IDS
    assert [chunk.tokens for chunk in record.chunks] == [2, 3]


def test_a_text_far_shorter_than_its_usage_shows_in_the_two_counts():
    record = streamed([Say(0.5, 50, text="aa"), Say(0.1, 50, text="aa")])
    assert record.output_tokens == 100
    assert record.retokenised_tokens is not None
    assert record.retokenised_tokens < 10


def test_an_answer_that_is_not_streamed_is_one_chunk_without_tpot():
    body = whole(CHAT, " a b c d", Usage(prompt=5, output=4))
    record = record_of([(0.7, body)], content_type="application/json", api=CHAT, stream=False)
    assert seen(record) == [(0.7, 4, CONTENT)]
    assert tpot_s(record) is None


@ALL
def test_whole_answers_of_every_api_are_read(api):
    body = whole(api, " a b c d", Usage(prompt=5, output=4))
    record = record_of([(0.7, body)], content_type="application/json", api=api, stream=False)
    assert succeeded(record)
    assert (record.output_tokens, record.server_prompt_tokens) == (4, 5)


@ALL
def test_an_error_inside_a_good_stream_is_a_failure(api):
    script = [*acts(api, [Say(0.5, 1)], end=False), broken(api, "the engine fell over")]
    record = record_of(reads_of(script), api=api)
    assert record.error_kind == "stream_error"
    assert "the engine fell over" in (record.error or "")
    assert not succeeded(record)
    assert record.output_tokens == 1  # what came before it is still told


def test_an_event_called_error_is_a_failure():
    record = record_of([(0.1, b'event: error\ndata: {"message": "no"}\n\n')], api=CHAT)
    assert (record.error_kind, record.finish_reason) == ("stream_error", "error")


@pytest.mark.parametrize(
    ("status", "kind"), [(400, "http_400"), (429, "http_429"), (500, "http_500"), (503, "http_503")]
)
def test_statuses_are_classes_of_failures_and_quote_the_server(status, kind):
    record = record_of([(0.1, b"queue is full")], status=status, api=CHAT)
    assert record.error_kind == kind
    assert "queue is full" in (record.error or "")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (httpx.ReadError("reset by peer"), "reset"),
        (httpx.RemoteProtocolError("gone"), "reset"),
        (httpx.ReadTimeout("slow"), "timeout"),
        (httpx.ConnectError("refused"), "connect"),
    ],
)
def test_what_the_network_does_is_a_class_of_failure(error, kind):
    reads = [*reads_of(acts(CHAT, [Say(0.5, 1)], end=False)), (0.1, error)]
    assert record_of(reads, api=CHAT).error_kind == kind


def test_a_connection_that_breaks_after_done_broke_nothing():
    reads = [*reads_of(acts(CHAT, [Say(0.5, 1)])), (0.1, httpx.ReadError("reset by peer"))]
    assert succeeded(record_of(reads, api=CHAT))


def test_a_stream_that_just_stops_is_truncated():
    record = record_of(reads_of(acts(CHAT, [Say(0.5, 1)], end=False)), api=CHAT)
    assert record.error_kind == "truncated"


def test_an_answer_without_a_token_is_no_success():
    record = record_of(reads_of(acts(CHAT, [])), api=CHAT)
    assert record.error_kind == "empty"
    assert not succeeded(record)


@pytest.mark.parametrize("data", [b"data: {nonsense\n\n", b"data: [1, 2]\n\n", b"data: 7\n\n"])
def test_what_is_no_json_object_is_named(data):
    record = record_of([(0.1, data)], api=CHAT)
    assert record.error_kind == "malformed"


def test_json_that_is_nested_too_deeply_is_named():
    record = record_of([(0.1, b"data: " + b"[" * 100_000 + b"\n\n")], api=CHAT)
    assert record.error_kind == "malformed"


def test_half_a_character_of_a_server_is_replaced_before_it_is_counted():
    data = b'data: {"choices": [{"delta": {"content": "\\ud800 a"}}]}\n\ndata: [DONE]\n\n'
    record = record_of([(0.1, data)], api=CHAT)
    assert record.finish_reason == "stop"
    assert record.retokenised_tokens


@pytest.mark.parametrize("absurd", [10**30, 2**31, -1])
def test_a_count_that_no_answer_can_have_reads_as_not_said(absurd):
    usage = {
        "prompt_tokens": absurd,
        "completion_tokens": absurd,
        "prompt_tokens_details": {"cached_tokens": absurd},
    }
    choice = {"text": " a", "token_ids": [absurd]}
    data = event({"choices": [choice], "usage": usage}) + b"data: [DONE]\n\n"
    record = record_of([(0.1, data)])
    assert (record.output_tokens, record.cached_tokens) == (1, 0)
    assert (record.server_prompt_tokens, record.server_output_tokens) == (None, None)
    assert not record.output_token_ids


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "choices",
                        "delta",
                        "usage",
                        "error",
                        "type",
                        "text",
                        "content",
                        "response",
                        "output",
                        "message",
                        "status",
                        "completion_tokens",
                        "logprobs",
                        "token_ids",
                    ]
                ),
                inner,
                max_size=3,
            )
        ),
        max_leaves=8,
    ),
    st.sampled_from(list(Api)),
)
@settings(max_examples=60, deadline=None)
def test_no_json_from_a_server_crashes_the_client(document, api):
    record = record_of([(0.1, event(document)), (0.1, b"data: [DONE]\n\n")], api=api)
    assert record.finish_reason is not None


def test_a_character_cut_in_two_by_the_network_is_whole():
    says = [Say(0.1, 2, text="漢🙂")]
    plain = Api.COMPLETIONS
    data = b"".join(act.data for act in acts(plain, says))
    whole_text = streamed(says, plain).text_hash
    for at in range(len(data)):
        record = record_of([(0.1, data[:at]), (0.1, data[at:])], api=plain)
        assert (record.error, record.text_hash) == (None, whole_text)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.sampled_from([1, 3, 8, 100]))
@settings(max_examples=40, deadline=None)
def test_cutting_a_stream_into_other_chunks_changes_no_token_metric(steps, size):
    """Tokens are made every 10 ms; a chunk is sent when its last one is made."""
    tokens = 1 + sum(steps)
    fine = streamed([Say(0.5, 1), *(Say(0.01, 1) for _ in range(tokens - 1))], Api.COMPLETIONS)
    coarse_says, left = [Say(0.5, 1)], tokens - 1
    while left:
        take = min(size, left)
        coarse_says.append(Say(0.01 * take, take))
        left -= take
    coarse = streamed(coarse_says, Api.COMPLETIONS)
    assert coarse.output_tokens == fine.output_tokens
    assert (ttft_s(coarse), e2e_s(coarse)) == pytest.approx((ttft_s(fine), e2e_s(fine)))
    assert tpot_s(coarse) == pytest.approx(tpot_s(fine))
    weighted = sum(n * (gap / n) for gap, n in gaps(coarse))
    assert weighted == pytest.approx(e2e_s(coarse) - ttft_s(coarse))
    assert all(gap / n == pytest.approx(0.01) for gap, n in gaps(coarse))


def test_several_tokens_in_the_first_chunk_are_no_part_of_the_divisor():
    record = streamed([Say(0.5, 8), *(Say(0.01, 1) for _ in range(8))])
    assert decode_tokens(record) == 8
    assert tpot_s(record) == pytest.approx(0.01)
    assert tpot_s(streamed([Say(0.5, 8)])) is None


def test_a_request_asks_for_what_the_workload_wants():
    body = request_body(spec(api=CHAT), "hello", request(tokens=9).sampling)
    assert body["messages"] == [{"role": "user", "content": "hello"}]
    assert (body["max_tokens"], body["temperature"], body["ignore_eos"]) == (9, 0.0, True)
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert request_body(spec(), [1, 2], request().sampling)["prompt"] == [1, 2]
    asked = request_body(spec(api=Api.RESPONSES), "hello", request(tokens=9).sampling)
    assert (asked["input"], asked["max_output_tokens"]) == ("hello", 9)


def test_fields_of_the_plan_are_laid_over_the_request():
    given_body = {"ignore_eos": False, "top_k": 5}
    body = request_body(spec(body=given_body), [1], request().sampling)
    assert (body["ignore_eos"], body["top_k"]) == (False, 5)


def test_a_request_that_is_given_up_is_aborted_even_before_it_began():
    clock = VirtualClock()
    target = scripted(clock, reads_of(acts(CHAT, [Say(1.0, 1)])), api=CHAT)
    target.submit(request())
    target.abort(request().request_id)
    [last] = target.poll(0.1)
    assert (last.output.finish_reason, last.output.error) == ("abort", None)
    target.close()


def test_engine_fields_are_refused_by_name():
    target = HttpTarget(spec())
    with pytest.raises(PlanError, match=r"engine: draft_length.*not started by us"):
        target.settings({"draft_length": 3})
    assert target.settings(target.settings({})) == target.settings({})


def test_what_is_not_known_of_a_server_is_none():
    facts = HttpTarget(spec()).describe({})
    unknown = (
        facts.window,
        facts.draft_block,
        facts.devices,
        facts.max_positions,
        facts.fingerprint,
    )
    assert unknown == (None,) * 5
    assert HttpTarget(spec(devices=8, max_positions=4096)).describe({}).devices == 8


def test_text_needs_a_tokenizer_and_says_so_before_anything_runs():
    with pytest.raises(PlanError, match=r"http\.tokenizer.*completions"):
        HttpTarget(HttpSpec(url="http://x", model="m", api=CHAT)).describe({})
    with pytest.raises(PlanError, match="cannot be read as a tokenizer"):
        HttpTarget(spec(api=CHAT, tokenizer="pyproject.toml")).describe({})


def test_special_tokens_are_refused_where_prompts_go_as_text():
    chat, plain = HttpTarget(spec(api=CHAT)), HttpTarget(spec(tokenizer=TOKENIZER))
    tokenizer = ClientTokenizer(TOKENIZER)
    special = tokenizer.name_of(tokenizer.special_ids[-1])
    with pytest.raises(WorkloadError, match=r"special tokens.*api: completions"):
        chat.encode({}, f"hello{special}")
    assert plain.encode({}, f"hello{special}")[-1] == tokenizer.special_ids[-1]
    assert chat.encode({}, "hello")


def test_events_of_one_network_read_have_the_stamp_of_that_read():
    data = b"".join(act.data for act in acts(CHAT, [Say(0, 1), Say(0, 2), Say(0, 1)]))
    assert [at for at, _, _ in seen(record_of([(0.4, data)], api=CHAT))] == [0.4] * 3


def test_a_key_is_read_from_the_environment_and_stored_nowhere(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "s3cret")
    clock = VirtualClock()
    target = scripted(clock, reads_of(acts(CHAT, [Say(0.1, 1)])), api=CHAT, key_env="SOME_KEY")
    flown(target, clock, request())
    assert "s3cret" not in spec(api=CHAT, key_env="SOME_KEY").model_dump_json()
    target.close()
    monkeypatch.delenv("SOME_KEY")
    with pytest.raises(ConfigError, match="SOME_KEY"):
        HttpTarget(spec(key_env="SOME_KEY")).submit(request())


@pytest.mark.parametrize("name", ["Authorization", "x-api-key"])
def test_headers_that_hold_a_key_are_refused(name):
    with pytest.raises(ValueError, match="key_env"):
        spec(headers={name: "s3cret"})


def test_a_server_that_is_not_there_or_serves_another_model_is_named():
    with pytest.raises(TargetError, match=r"does not answer.*correct http\.url"):
        HttpTarget(spec("http://127.0.0.1:9")).open({})
    with serving(lambda _: None) as server, pytest.raises(TargetError, match="serves null"):
        HttpTarget(spec(server.url, model="other")).open({})


def test_the_address_may_be_given_with_its_version():
    assert spec("http://host:8000/v1/").url == "http://host:8000"
    assert spec("http://host/prefix/v1").url == "http://host/prefix"


def test_kinds_of_chunks_are_those_of_the_records():
    assert {CONTENT, REASONING, TOOL} == set(ChunkKind)
