"""Chats in the form that a checkpoint brings, held to transformers' rendering of the same file."""

import json
from dataclasses import replace

import pytest

from experiments.chat import ChatForm
from experiments.chat_template import read_chat_template
from experiments.errors import WorkloadError
from tests.fakes.workloads import FACTS, workload, written

TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Größe <b> & 'q'?"},
    {"role": "assistant", "content": "12"},
    {"role": "user", "content": "吞吐量?"},
]
# The constructs that templates of Llama, SmolLM2 and Qwen3 use, in a form of our own.
TEMPLATE = """{{- bos_token }}
{%- if messages[0].role != 'system' %}
    {{- '[system]none' + eos_token }}
{%- endif %}
{%- set ns = namespace(last=-1) %}
{%- for message in messages[::-1] %}
    {%- if message.role == 'user' %}{%- set ns.last = loop.index0 %}{%- break %}{%- endif %}
{%- endfor %}
{% for message in messages %}
    [{{ message['role'] }}:{{ ns.last }}]
{{ message.content | trim }}{{ message.content | tojson }}{{ eos_token }}
{% endfor %}
{%- if tools %}{{ raise_exception('no tools') }}{% endif %}
{%- if add_generation_prompt %}[assistant]
    {%- if enable_thinking is defined and enable_thinking is false %}<think></think>{%- endif %}
{%- endif %}"""
CONFIG = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "model_max_length": 9}


def checkpoint(folder, template=TEMPLATE, **config):
    """A folder as a release brings it, as far as chats go."""
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer_config.json").write_text(json.dumps(CONFIG | config), encoding="utf-8")
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder


def facts(folder):
    return replace(FACTS, model=str(folder))


def form(folder):
    return ChatForm(facts=facts(folder), encode=lambda text: list(text.encode()))


@pytest.mark.parametrize("turns", [TURNS, TURNS[1:2]])
@pytest.mark.parametrize("thinking", [True, False])
def test_a_chat_is_rendered_as_transformers_renders_it(tmp_path, turns, thinking):
    reason = "transformers is not installed"
    utils = pytest.importorskip("transformers.utils.chat_template_utils", reason=reason)
    rendered, _ = utils.render_jinja_template(
        conversations=[turns], chat_template=TEMPLATE, add_generation_prompt=True,
        enable_thinking=thinking, bos_token="<s>", eos_token="</s>",
    )  # fmt: skip
    chat = form(checkpoint(tmp_path / "m"))
    assert chat.takes_thinking
    assert bytes(chat.ids(turns, "here", thinking=thinking)).decode() == rendered[0]


def test_messages_of_a_workload_take_the_form_of_its_checkpoint(tmp_path):
    path = written(tmp_path, "c.jsonl", json.dumps({"messages": TURNS}))
    folder = checkpoint(tmp_path / "m", "{{ messages | map(attribute='content') | join('|') }}!")
    source = workload(kind="text", path=path, facts=facts(folder))
    asked = "|".join(turn["content"] for turn in TURNS) + "!"
    assert bytes(source.prompts[0]).decode() == asked
    assert not form(folder).takes_thinking


@pytest.mark.parametrize("stored", ["C", [{"name": "default", "template": "C"}, {"name": "x"}]])
def test_the_field_of_the_tokenizers_file_is_read_too(tmp_path, stored):
    folder = checkpoint(tmp_path / "m", None, chat_template=stored)
    assert form(folder).ids(TURNS, "here") == list(b"C")
    (folder / "chat_template.jinja").write_text("F", encoding="utf-8")
    assert form(folder).ids(TURNS, "here") == list(b"F")


@pytest.mark.parametrize("stored", [None, [], [{"name": "rag", "template": "x"}]])
def test_without_a_template_and_chat_tokens_a_chat_is_refused(tmp_path, stored):
    chat = form(checkpoint(tmp_path / "m", None, chat_template=stored))
    assert not chat.is_known
    with pytest.raises(WorkloadError, match="no chat template and no chat tokens"):
        chat.ids(TURNS, "here")


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for x in %}", "chat template refuses"),
        ("{{ messages[0].content.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe|not safely callable"),
        ("{% include 'x' %}", "chat template refuses"),
        ("{{ 1 / 0 }}", "division by zero"),
    ],
)
def test_a_template_that_fails_is_named(tmp_path, template, said):
    chat = form(checkpoint(tmp_path / "m", template))
    with pytest.raises(WorkloadError, match=said) as caught:
        chat.ids(TURNS, "here")
    assert caught.value.where == str(tmp_path / "m" / "chat_template.jinja")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("chat_template.jinja", b"\xff\xfe\xff", "cannot be read"),
        ("tokenizer_config.json", b"{", "cannot be read"),
        ("tokenizer_config.json", b"[]", "no JSON object"),
        ("tokenizer_config.json", b'{"chat_template": 5}', "chat_template is 5, not a text"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, content, said):
    folder = checkpoint(tmp_path / "m", None)
    (folder / name).write_bytes(content)
    with pytest.raises(WorkloadError, match=said) as caught:
        read_chat_template(folder)
    assert caught.value.where == str(folder / name)
