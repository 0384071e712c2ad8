"""The DSpark stages over many anchors of a sequence at once, and what they learn from.

An anchor is a position a of a known text: the drafter gets the token there, the target's taps
of the positions before it, and guesses the tokens at a+1 .. a+5. The true token stands for the
previous draft in the Markov head. Teacher: the target's distribution at the same places.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F

from experiments.training import layers
from experiments.training.attention import GatherRows
from kernels.norm.reference import rms_norm
from kernels.rotary.reference import Rotation, frequencies, rotate, rotation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from engine.models.deepseek_v41.config import DeepseekV41Config
    from experiments.training.forward import Operations


class Context(NamedTuple):
    """What the target knows of B sequences of L tokens, detached."""

    tokens: Tensor  # [B, L]
    taps: Tensor  # [B * L, taps * D]


class Drafted(NamedTuple):
    """Guesses of every anchor: b blocks of `dspark_block_size` rows."""

    logits: Tensor  # [b, block, vocab]
    confidence: Tensor  # [b, block] raw
    load: Tensor  # [stages, E]


def draft(
    table: Mapping[str, Tensor],
    context: Context,
    anchors: Tensor,
    config: DeepseekV41Config,
    do: Operations,
) -> Drafted:
    """Run the stages for anchors [B, A] (1 <= a and a + block < L); b = B * A."""
    block, eps = config.dspark_block_size, config.rms_norm_eps
    places = anchors.unsqueeze(-1) + torch.arange(block, device=anchors.device)  # [B, A, block]
    streams, pre = _start(table, context.tokens, anchors, config)
    turn = _rotation(places.flatten(), config)
    main = rms_norm(
        context.taps.to(table["mtp.0.main_proj.weight"].dtype) @ table["mtp.0.main_proj.weight"].T,
        table["mtp.0.main_norm.weight"],
        eps,
    )
    window = _Window.of(anchors, config, context.tokens.shape)
    loads = []
    for stage in range(config.num_nextn_predict_layers):
        w = layers.layer_weights(table, f"mtp.{stage}.", config.dspark_num_experts_per_tok)
        seen = window.rows(main, w.attention, config)  # [b, W, d]
        mixes = do.mix(streams, w.attention.mixer, config)
        projected = do.project(streams, pre, w.attention, turn, config)
        attended = _attend(projected, seen, window.valid, w.attention.sink, block)
        streams = do.add_attention(attended, streams, mixes, w.attention, turn.inverse)
        after = do.mix(streams, w.ffn.mixer, config)
        streams, load = do.add_experts(streams, mixes.pre, after, w, config)
        pre = after.pre
        loads.append(load)
    hidden = layers.collapse(streams, pre)
    logits, confidence = _heads(table, hidden, context.tokens, places, config)
    shape = (anchors.numel(), block)
    return Drafted(logits.unflatten(0, shape), confidence.unflatten(0, shape), torch.stack(loads))


def _start(
    table: Mapping[str, Tensor], tokens: Tensor, anchors: Tensor, config: DeepseekV41Config
) -> tuple[Tensor, Tensor]:
    ids = torch.full(
        (*anchors.shape, config.dspark_block_size),
        config.dspark_noise_token_id,
        device=anchors.device,
    )
    ids[..., 0] = tokens.gather(1, anchors)
    embedded = table["embed.weight"][ids.flatten()].float()
    streams = embedded.unsqueeze(1).repeat(1, config.hc_mult, 1)
    pre = torch.zeros_like(streams[..., 0])
    pre[:, 0] = 1.0
    return streams, pre


@cache  # made on the host: a recorded step may not
def _frequencies(width: int, base: float, device: torch.device) -> Tensor:
    return frequencies(width, base).float().to(device)


def _rotation(positions: Tensor, config: DeepseekV41Config) -> Rotation:
    width, base = config.qk_rope_head_dim, config.rope_theta
    return rotation(positions, _frequencies(width, base, positions.device))


class _Window(NamedTuple):
    """The newest context rows before each anchor."""

    index: Tensor  # [b, W] into B * L
    valid: Tensor  # [b, W]
    shape: tuple[int, int]

    @classmethod
    def of(cls, anchors: Tensor, config: DeepseekV41Config, shape: torch.Size) -> _Window:
        back = torch.arange(-config.sliding_window, 0, device=anchors.device)
        position = anchors.unsqueeze(-1) + back  # [B, A, W]
        starts = torch.arange(shape[0], device=anchors.device).view(-1, 1, 1) * shape[1]
        index = position.clamp(min=0) + starts
        return cls(index.flatten(0, 1), (position >= 0).flatten(0, 1), (shape[0], shape[1]))

    def rows(self, main: Tensor, w: layers.AttentionWeights, config: DeepseekV41Config) -> Tensor:
        positions = torch.arange(self.shape[1], device=main.device).repeat(self.shape[0])
        turn = _rotation(positions, config)
        rows = rotate(rms_norm(main @ w.wkv.T, w.kv_norm, config.rms_norm_eps), turn)
        return GatherRows.apply(rows, self.index)


def _attend(
    projected: layers.Projected, seen: Tensor, valid: Tensor, sink: Tensor, block: int
) -> Tensor:
    """Attention of block rows to their context and to each other, no mask among them."""
    queries = projected.queries.unflatten(0, (-1, block))  # [b, block, H, d]
    keys = torch.cat((seen, projected.rows.unflatten(0, (-1, block))), 1)  # [b, W + block, d]
    flat = queries.flatten(1, 2)
    scores = (flat @ keys.mT).float() * queries.shape[-1] ** -0.5
    known = F.pad(valid, (0, block), value=True).unsqueeze(1)
    scores = scores.masked_fill(~known, -torch.inf)
    lse = torch.logaddexp(scores.logsumexp(-1), sink.repeat(block))
    out = (scores - lse.unsqueeze(-1)).exp().to(keys.dtype) @ keys
    return out.unflatten(1, queries.shape[1:3]).flatten(0, 1)


def _heads(
    table: Mapping[str, Tensor],
    hidden: Tensor,
    tokens: Tensor,
    places: Tensor,
    config: DeepseekV41Config,
) -> tuple[Tensor, Tensor]:
    last = f"mtp.{config.num_nextn_predict_layers - 1}."
    head = table["head.weight"]
    normed = rms_norm(hidden, table[f"{last}norm.weight"], config.rms_norm_eps).to(head.dtype)
    previous = tokens.gather(1, places.flatten(1)).flatten()
    memory = GatherRows.apply(table[f"{last}markov_head.embed.weight"], previous)
    logits = normed @ head.T + memory @ table[f"{last}markov_head.head.weight"].T
    both = torch.cat((hidden, memory.float()), -1)
    return logits, both @ table[f"{last}confidence_head.proj.weight"].float().squeeze(0)


class DraftLoss(NamedTuple):
    """What the stages learn from, and how well they do."""

    draft: Tensor  # cross-entropy to the target's distribution, weighted by position
    confidence: Tensor  # binary cross-entropy to 1 - TV
    agreement: Tensor  # [block] share of first choices equal to the target's
    overlap: Tensor  # [block] mean 1 - TV


def draft_loss(drafted: Drafted, teacher: Tensor, decay: float) -> DraftLoss:
    """Compare with the target's logits [b, block, vocab]; position k weighs decay^k."""
    wanted = teacher.float().log_softmax(-1)
    given = drafted.logits.float().log_softmax(-1)
    p, q = wanted.exp(), given.exp()
    weight = decay ** torch.arange(p.shape[1], device=p.device)
    cross = -(p * given).sum(-1).mean(0)  # [block]
    overlap = torch.minimum(p, q).sum(-1).detach()  # 1 - TV
    agree = (teacher.argmax(-1) == drafted.logits.argmax(-1)).float().mean(0)
    return DraftLoss(
        draft=(cross * weight).sum() / weight.sum(),
        confidence=F.binary_cross_entropy_with_logits(drafted.confidence.float(), overlap),
        agreement=agree,
        overlap=overlap.mean(0),
    )
