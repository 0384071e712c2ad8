"""Prompts from text files, row by row."""

import json
import os

import pytest

from experiments.errors import WorkloadError
from experiments.training.chat_format import (
    ASSISTANT,
    BOS,
    EOS,
    SYSTEM,
    USER,
    Chat,
    Exchange,
    render,
)
from tests.fakes.workloads import items, workload, written


def test_text_is_cut_into_prompts_and_the_salt_moves_the_start(tmp_path):
    path = written(tmp_path, "book.txt", "".join(chr(97 + i % 26) for i in range(105)))
    source = workload(kind="text", path=path, prompt_tokens=10, output_tokens=4)
    prompts = [item.prompt_token_ids for item in items(source, 10)]
    assert {len(prompt) for prompt in prompts} == {10}
    assert len(set(prompts)) == 10
    starts = {source.item(0, str(salt)).prompt_token_ids for salt in range(40)}
    assert len(starts) > 3
    assert source.description()["content"] == "text"
    assert not source.spec.exact_output_length  # the text decides where it ends


def test_jsonl_prompts_are_kept_whole_in_any_script(tmp_path):
    path = written(tmp_path, "p.jsonl", '{"prompt": "吞吐量"}\n\n{"prompt": "Größe"}\n')
    source = workload(kind="text", path=path, output_tokens=4)
    found = {bytes(item.prompt_token_ids).decode() for item in items(source, 2)}
    assert found == {"吞吐量", "Größe"}
    with pytest.raises(WorkloadError, match=r"p2\.jsonl:1.*no text field `prompt`"):
        workload(kind="text", path=written(tmp_path, "p2.jsonl", '{"text": "x"}\n'))
    with pytest.raises(WorkloadError, match="has no prompt"):
        workload(kind="text", path=written(tmp_path, "p3.jsonl", '{"prompt": ""}\n'))
    with pytest.raises(WorkloadError, match="Set or lower prompt_tokens"):
        workload(kind="text", path=written(tmp_path, "long.txt", "x" * 3000))


def test_a_row_says_its_own_output_length(tmp_path):
    path = written(tmp_path, "p.jsonl", '{"prompt": "abc", "output_tokens": 9}\n{"prompt": "de"}\n')
    source = workload(kind="text", path=path, output_tokens=4)
    found = {bytes(i.prompt_token_ids): i.output_tokens for i in items(source, 2)}
    assert found == {b"abc": 9, b"de": 4}
    assert source.longest == 12
    for value, said in ((0, "at least one token"), ("x", "not a whole number"), (1.5, "not a")):
        bad = written(tmp_path, "b.jsonl", json.dumps({"prompt": "a", "output_tokens": value}))
        with pytest.raises(WorkloadError, match=rf"b\.jsonl:1.*output_tokens.*{said}"):
            workload(kind="text", path=bad)


def chat_ids(text):
    """A tokenizer that knows the chat tokens: an id for each of them, and one for a byte."""
    found, marks = [], {t: 300 + i for i, t in enumerate((BOS, EOS, SYSTEM, USER, ASSISTANT))}
    while text:
        mark = next((m for m in marks if text.startswith(m)), None)
        found += [marks[mark]] if mark else list(text[0].encode())
        text = text[len(mark or text[0]) :]
    return found


def test_messages_are_rendered_in_the_form_that_the_model_learned(tmp_path):
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "1 + 1?"},
    ]
    path = written(tmp_path, "c.jsonl", json.dumps({"messages": turns}))
    source = workload(kind="text", path=path, encode=chat_ids)
    exchanges = [Exchange("Hi", "Hello."), Exchange("1 + 1?", "")]
    learned = BOS + render(Chat(exchanges, system="Be brief."))
    assert list(source.prompts[0]) == chat_ids(learned)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"messages": [{"role": "user", "content": "x"}]}, "no chat tokens"),
        ({"messages": []}, "not a list of turns"),
        ({"messages": "x"}, "not a list of turns"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "no role of system, user, assistant"),
        ({"messages": [{"role": "user", "content": 5}]}, "with a text as content"),
        ({"messages": [["user", "x"]]}, "with a text as content"),
        ({"prompt": "x", "messages": []}, "has `prompt` and `messages`"),
        ({"prompt": 5}, "has no text field `prompt`"),
    ],
)
def test_messages_that_are_no_chat_are_refused_by_their_line(tmp_path, row, said):
    # modelscope/evalscope 1564: a checkpoint without a chat form aborted the run.
    path = written(tmp_path, "c.jsonl", json.dumps(row))
    with pytest.raises(WorkloadError, match=said) as caught:
        workload(kind="text", path=path)
    assert caught.value.where == f"{path}:1"


def test_a_missing_file_an_unknown_sample_and_bytes_are_refused(tmp_path):
    with pytest.raises(WorkloadError, match="no such file"):
        workload(kind="trace", path=str(tmp_path / "none"))
    with pytest.raises(WorkloadError, match="Did you mean azure"):
        workload(kind="trace", path="sample:azur")
    (tmp_path / "b").write_bytes(b"\xff\xfe")
    with pytest.raises(WorkloadError, match="not UTF-8"):
        workload(kind="text", path=str(tmp_path / "b"))


@pytest.mark.parametrize("kind", ["text", "trace"])
def test_what_never_ends_or_is_read_but_once_is_no_workload(tmp_path, kind):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(WorkloadError, match="no regular file"):
            workload(kind=kind, path=str(path))


@pytest.mark.parametrize("path", ["a\0b", "~no-such-user-here/t.csv"])
def test_what_is_no_path_is_refused(tmp_path, path):
    with pytest.raises(WorkloadError, match="is no path"):
        workload(tmp_path, kind="text", path=path)
