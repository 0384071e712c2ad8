"""A captured graph on a CPU: operations are taken down once and done again in the same tensors.

What a device cannot record is refused: values read by the host, shapes that follow from values,
tensors made of the host's numbers. As on a device, recording does nothing yet, so whatever it
wrote is put back; and what the host decided while recording stays decided.
"""

from contextlib import ExitStack
from dataclasses import dataclass, field
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

REFUSED = {
    "_local_scalar_dense": "the host reads a value",
    "nonzero": "a shape follows from values",
    "masked_select": "a shape follows from values",
    "bincount": "a shape follows from values",
    "unique_dim": "a shape follows from values",
    "_unique2": "a shape follows from values",
    "equal": "the host reads a value",
    "lift_fresh": "a tensor is made of the host's numbers",
}


class RecordingRefusedError(AssertionError):
    """No graph can hold this."""


def _in_bounds(func, args):
    """What is taken down runs on what lies there now, which may be of no step: positions, too."""
    if func._schema.name != "aten::gather":
        return args
    source, dim, index = args
    return source, dim, index.clamp(0, source.shape[dim] - 1)


def _tensors(values):
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _bytes(tensor):
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8).set_(storage, 0, (len(storage),), (1,))


def _place(tensor):
    return tensor.untyped_storage().data_ptr()


class _Tape(TorchDispatchMode):
    """Takes down calls with the tensors that they took and gave."""

    def __init__(self):
        super().__init__()
        self.calls = []
        self.own = set()  # places that came into being meanwhile
        self.before = {}  # place -> (bytes, what they held)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        self._check(func, args, kwargs)
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                for tensor in _tensors(value):
                    self._keep(tensor)
        given = func(*_in_bounds(func, args), **kwargs)
        places = {_place(t) for t in _tensors((args, kwargs))}
        fresh = [t for t in _tensors(given) if _place(t) not in places]
        self.own |= {_place(t) for t in fresh}
        self.calls.append((func, args, kwargs, given, places))
        return given

    def _keep(self, tensor):
        place = _place(tensor)
        if place not in self.own and place not in self.before:
            whole = _bytes(tensor)
            self.before[place] = (whole, whole.clone())

    def _check(self, func, args, kwargs):
        name = func._schema.name.split("::")[1]
        if name in REFUSED:
            raise RecordingRefusedError(f"{name}: {REFUSED[name]}")
        is_index = name in ("index", "index_put", "index_put_", "_index_put_impl_")
        if is_index and any(t.dtype == torch.bool for t in _tensors(args[1])):
            raise RecordingRefusedError(f"{name}: a shape follows from a mask")
        is_even = func._overloadname == "self_int"  # as often for each
        if name == "repeat_interleave" and not is_even and kwargs.get("output_size") is None:
            raise RecordingRefusedError(f"{name}: a shape follows from values")


def _refuse(what):
    def refuse(*_args, **_kwargs):
        raise RecordingRefusedError(f"{what}: the host reads a value")

    return refuse


@dataclass
class _Graph:
    tape: _Tape
    results: tuple
    held_bytes: int
    is_forgotten: bool = False

    @torch.inference_mode()
    def replay(self):
        assert not self.is_forgotten, "a graph that was let go is replayed"
        for func, args, kwargs, given, places in self.tape.calls:
            for old, new in zip(_tensors(given), _tensors(func(*args, **kwargs)), strict=True):
                if _place(old) not in places:
                    assert old.shape == new.shape, f"{func} gives another shape when replayed"
                    old.copy_(new)
        return tuple(result.clone() for result in self.results)  # a ticket copies them


@dataclass
class FakeRecorder:
    """`engine.accelerator.interface.GraphRecorder` of a CPU; counts what it does."""

    budget: int = 2**60
    graph_bytes: int = 1
    recorded: int = 0
    forgotten: int = 0
    graphs: list = field(default_factory=list)

    def budget_bytes(self):
        return self.budget

    def record(self, work):
        tape = _Tape()
        with ExitStack() as stack:
            for name in ("tolist", "numpy", "cpu", "__bool__", "__int__", "__float__"):
                stack.enter_context(patch.object(torch.Tensor, name, _refuse(name)))
            stack.enter_context(tape)
            results = work()
        with torch.inference_mode():
            for whole, held in tape.before.values():
                whole.copy_(held)
        self.recorded += 1
        self.graphs.append(_Graph(tape, results, self.graph_bytes))
        return self.graphs[-1]

    def forget(self, graph):
        graph.is_forgotten = True
        graph.tape.calls.clear()
        self.forgotten += 1
