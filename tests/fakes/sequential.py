"""What the hash model says, one request and one token at a time: no engine, no cache."""

import torch

from tests.fakes.hash_model import FACTS, expected_logits
from tests.fakes.sampling import Rows, choose


def expected_text(prompt, params, *, seed=0, keep=None, longest=FACTS.max_positions):
    """The tokens that a request must yield, and whether it ends by a stop token.

    `keep` None means no decoder truncation.
    """
    start = 0 if keep is None else max(0, len(prompt) - keep)
    tokens = list(prompt)
    stops = {*params.stop_token_ids} | (set() if params.ignore_eos else {FACTS.eos_token_id})
    while True:
        index = len(tokens) - len(prompt)
        logits = torch.from_numpy(expected_logits(tokens, start))[None]
        rows = Rows(params, seed, 1, len(tokens), index)
        tokens.append(choose(logits, [rows], FACTS.eos_token_id)[0])
        if index >= params.min_tokens and tokens[-1] in stops:
            return tokens[len(prompt) :], True
        if index + 1 == params.max_tokens or len(tokens) == longest:
            return tokens[len(prompt) :], False
