"""Trace files: what is read, and what is refused by file and line."""

import pytest

from experiments.errors import WorkloadError
from experiments.traces import read_trace
from tests.fakes.workloads import items, workload, written


def test_later_turns_carry_their_delay_and_no_arrival(tmp_path):
    # The form of NVIDIA/srt-slurm tests/fixtures.
    path = written(
        tmp_path,
        "turns.jsonl",
        '{"session_id":"a","input_length":1200,"output_length":50,"hash_ids":[0,1,2],'
        '"timestamp":100.0,"group_id":0}\n'
        '{"session_id":"a","input_length":512,"output_length":30,"hash_ids":[3],"delay":100.0}\n',
    )
    first, later = read_trace(tmp_path / "turns.jsonl").rows
    assert (first.arrival_s, first.delay_s, first.session) == (0.0, None, "a")
    assert (later.arrival_s, later.delay_s) == (None, 0.1)
    source = workload(kind="trace", path=path)
    assert (source.arrival_s(0), source.arrival_s(1)) == (0.0, None)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.csv", "", "has no rows"),
        ("t.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "no rows"),
        ("t.csv", "TIMESTAMP,Context\n1,2\n", "t.csv:1.*has the columns"),
        ("t.csv", "{h}2023-11-16 18:17:03.9,48\n", "t.csv:2.*2 columns"),
        ("t.csv", "{h}2023-11-16 18:17:03.9,48,x\n", "t.csv:2.*GeneratedTokens is 'x'"),
        ("t.csv", "{h}2023-11-16 18:17:03.9,48,0\n", "at least one token"),
        ("t.csv", "{h}2023-11-16 18:17:03.9,48,-3\n", "at least one token"),
        ("t.csv", "{h}yesterday,48,3\n", "t.csv:2.*TIMESTAMP"),
        ("t.jsonl", "{{}}\n", "t.jsonl:1.*input_length is None"),
        ("t.jsonl", '{{"input_length": 9, "output_length": 2}}\n{{"in\n', "t.jsonl:2.*not JSON"),
        ("t.jsonl", "[1]\n", "t.jsonl:1.*not a JSON object"),
        ("t.jsonl", '{{"input_length": 9.5, "output_length": 2}}\n', "9.5, not a whole number"),
        ("t.jsonl", '{{"input_length": true, "output_length": 2}}\n', "True, not a whole"),
        (
            "t.jsonl",
            '{{"input_length": 9, "output_length": 2, "hash_ids": [1, 2]}}\n',
            "more than one a block",
        ),
        (
            "t.jsonl",
            '{{"input_length": 9, "output_length": 2, "hash_ids": "1"}}\n',
            "not a list of whole numbers",
        ),
        (
            "t.jsonl",
            '{{"input_length": 9, "output_length": 2, "timestamp": NaN}}\n',
            "not a number of milliseconds",
        ),
    ],
)
def test_a_damaged_trace_is_named_by_file_and_line(tmp_path, name, text, said):
    header = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    path = written(tmp_path, name, text.format(h=header))
    with pytest.raises(WorkloadError, match=said):
        workload(kind="trace", path=path)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('"hash_ids": [9223372036854775808]', "hash_id is not from 0"),
        ('"hash_ids": [-1]', "hash_id is not from 0"),
        ('"session_id": "\\ud800"', "half of a character"),
        ('"timestamp": Infinity', "timestamp is inf"),
        ('"timestamp": NaN', "timestamp is nan"),
        ('"timestamp": 1' + "0" * 4000, "timestamp is 1000"),
        ('"timestamp": 1' + "0" * 5000, "too many digits"),
        ('"input_length": 1' + "0" * 4000, "not a whole number"),
        ('"input_length": "--5"', "not a whole number"),
        ('"hash_ids": ' + "[" * 100_000, "nested too deeply"),
    ],
)
def test_hostile_rows_of_a_trace_are_refused_by_file_and_line(tmp_path, row, said):
    good = '{"timestamp": 0, "input_length": 9, "output_length": 2}'
    bad = '{"timestamp": 0, "input_length": 9, "output_length": 2, ' + row + "}"
    path = tmp_path / "t.jsonl"
    path.write_text(f"{good}\n{bad}\n")
    with pytest.raises(WorkloadError, match=said) as caught:
        read_trace(path)
    assert caught.value.where == f"{path}:2"
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "cells",
    [
        "2023-11-16 18:15:46.5e400,9,2",
        "2023-11-16 18:15:46.-5,9,2",
        "2023-11-16 18:15:46,--9,2",
        "0000-11-16 18:15:46,9,2",
    ],
)
def test_hostile_cells_of_a_trace_are_refused_by_file_and_line(tmp_path, cells):
    path = tmp_path / "t.csv"
    path.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{cells}\n")
    with pytest.raises(WorkloadError) as caught:
        read_trace(path)
    assert caught.value.where == f"{path}:2"


def test_a_surrogate_pair_in_a_trace_is_a_character(tmp_path):
    path = tmp_path / "t.jsonl"
    row = '{"timestamp": 0, "input_length": 9, "output_length": 2, "session_id": "\\ud83d\\ude00"}'
    path.write_text(row)
    assert read_trace(path).rows[0].session == "\N{GRINNING FACE}"


BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


BURST_LONG = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
)


def test_burstgpt_rows_are_read_in_both_forms_and_failed_ones_are_counted(tmp_path):
    # The form of HPMLL/BurstGPT: seconds, and 0 response tokens where the request failed.
    short = written(
        tmp_path,
        "a.csv",
        BURST
        + "5,ChatGPT,40,18,58,Conversation log\n45.5,GPT-4,60,0,60,API log\n"
        + "46,GPT-4,30,7,37,Conversation log\n",
    )
    rows = "5,7,1.5,ChatGPT,40,18,58,API log\n9,,2,GPT-4,0,0,0,API log\n"
    written(tmp_path, "b.csv", BURST_LONG + rows)
    source = workload(kind="trace", path=short, scale=1.0)
    assert source.description()["rows"] == 2
    assert source.description()["failed_rows"] == 1
    assert [source.arrival_s(i) for i in range(2)] == [0.0, 41.0]
    assert [len(item.prompt_token_ids) for item in items(source, 2)] == [40, 30]
    assert [item.output_tokens for item in items(source, 2)] == [18, 7]
    read = read_trace(tmp_path / "b.csv")
    assert (len(read.rows), read.failed) == (1, 1)
    assert read.rows[0].prompt_tokens == 40


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("x,ChatGPT,4,1,5,API log", r"t\.csv:2.*Timestamp is 'x'"),
        ("nan,ChatGPT,4,1,5,API log", r"t\.csv:2.*Timestamp is 'nan'"),
        ("-1,ChatGPT,4,1,5,API log", r"t\.csv:2.*Timestamp"),
        ("1,ChatGPT,4.5,1,5,API log", r"t\.csv:2.*Request tokens is '4.5'"),
        ("1,ChatGPT,4,-1,5,API log", r"t\.csv:2.*at least one token"),
        ("1,ChatGPT,0,1,5,API log", r"t\.csv:2.*at least one token"),
        ("1,ChatGPT,4,1,5", r"t\.csv:2.*5 columns, not 6"),
        ("1,ChatGPT,4,0,5,API log", "no row of a request that succeeded"),
    ],
)
def test_damaged_burstgpt_rows_are_named_by_file_and_line(tmp_path, rows, said):
    path = written(tmp_path, "t.csv", f"{BURST}{rows}\n")
    with pytest.raises(WorkloadError, match=said):
        workload(kind="trace", path=path)


def test_a_header_that_is_nearly_burstgpts_is_told_what_it_lacks(tmp_path):
    path = written(tmp_path, "t.csv", "Timestamp,Model,Request tokens\n1,x,2\n")
    with pytest.raises(WorkloadError, match="lacks Response tokens, Total tokens, Log Type"):
        workload(kind="trace", path=path)
