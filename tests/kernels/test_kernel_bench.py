"""The bench of kernels, without a device: what it times, and what it writes."""

import gc
import json
import weakref
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from kernels import bench
from kernels.bench import Bench, Missing, Timing, add_to, line
from kernels.bench_document import BenchDocument
from kernels.case import VALUE_BYTES, Case
from kernels.cases import RELEASE_CASES, TIMED_CASES
from kernels.cases_moe import few_experts_case
from kernels.cost import Ceilings, Cost
from kernels.input_sets import CACHE_BYTES, FEW_SETS, MOST_SETS, input_sets, sets_of
from kernels.ops import REFERENCE
from kernels.peers import PEERS, Peer
from kernels.registry import FP8_EXPERTS, IMPLEMENTATIONS, Implementation, Needs
from kernels.stopwatch import Captured, Stopwatch
from kernels.surroundings import commit

CEILINGS = Ceilings(copy_bytes_s=4e12, bf16_flops_s=8e14, fp8_flops_s=16e14)


class FakeWatch:
    """Every call takes a microsecond."""

    def ceilings(self):
        return CEILINGS

    def capture(self, works):
        return Captured(replay=works[0], calls=len(works), works=tuple(works))

    def compare(self, arms):
        for arm in arms.values():
            arm.replay()
        return dict.fromkeys(arms, 1e-6)

    def failure(self):
        return None


def names_timed(case, monkeypatch):
    """Of implementations for a device."""
    monkeypatch.setattr(bench, "load", lambda implementation: print)
    monkeypatch.setattr(bench, "arch_of", lambda device: 90)
    made = Bench(torch.device("cuda"), FakeWatch(), with_definitions=False)
    return [name for name, _ in made._arms(case)]


class Graph:
    """Stands for a captured graph: it holds nothing of what it reads."""

    def replay(self):
        pass


class GraphWatch(Stopwatch):
    """The stopwatch of a device, whose work takes a microsecond of nobody's time."""

    def seconds(self, work):
        work()
        return 1e-6

    def ceilings(self):
        return CEILINGS


@pytest.fixture
def graph_watch(monkeypatch):
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", nullcontext)
    return GraphWatch(torch.device("cpu"))


def doubled(x):
    return 2 * x


def a_case(**changes):
    plain = {
        "op": "rms_norm",
        "name": "width 8",
        "make": lambda rows, dtype, device: (
            torch.ones(rows, 8, dtype=dtype, device=device), torch.ones(8, device=device), 1e-6,
        ),
        "bytes_per_row": lambda size: 16 * size,
        "fixed_bytes": 32,
    }  # fmt: skip
    return Case(**{**plain, **changes})


def times_with(monkeypatch, peers, case=None):
    monkeypatch.setattr(bench, "IMPLEMENTATIONS", ())
    monkeypatch.setattr(bench, "peers_of", lambda op: iter(peers))
    made = Bench(torch.device("cpu"), FakeWatch(), with_definitions=True)
    return made.time(case or a_case(), 4)


def peer(bind):
    return Peer(op="rms_norm", name="other", module="torch", bind=bind)


def test_a_floor_is_the_longer_of_moving_and_multiplying():
    assert CEILINGS.floor_s(Cost(bytes=4_000_000)) == 1e-6
    assert CEILINGS.floor_s(Cost(bytes=4, flops=8 * 10**8)) == 1e-6
    assert CEILINGS.floor_s(Cost(bytes=4, flops=8 * 10**8, number="fp8")) == 0.5e-6


def test_the_cost_of_a_case_counts_rows_parameters_and_products():
    case = a_case(flops=lambda rows: 10 * rows, number="fp8")
    assert case.cost(4, 2) == Cost(bytes=4 * 32 + 32, flops=40, number="fp8")


def test_the_definition_and_a_peer_are_timed_on_the_same_case(monkeypatch):
    told = times_with(monkeypatch, [peer(lambda arguments: lambda: doubled(arguments[0]))])
    assert [(t.implementation, t.is_peer, t.cold_s) for t in told] == [
        ("reference", False, 1e-6),
        ("other", True, 1e-6),
    ]
    assert told[0].fraction == pytest.approx((4 * 32 + 32) / 4e12 / 1e-6)


def test_on_a_device_its_implementations_are_timed_and_those_for_others_are_not(monkeypatch):
    ours = Implementation(op="rms_norm", name="triton", address="", unsuited=lambda *_: None)
    other = replace(ours, name="for another", needs=Needs(arch=100))
    monkeypatch.setattr(bench, "IMPLEMENTATIONS", (ours, other))
    monkeypatch.setattr(bench, "load", lambda implementation: REFERENCE.rms_norm)
    monkeypatch.setattr(bench, "arch_of", lambda device: 90)
    case = a_case(make=lambda rows, dtype, device: (torch.ones(rows, 8), torch.ones(8), 1e-6))
    told = Bench(torch.device("cuda"), FakeWatch(), with_definitions=False).time(case, 4)
    assert [one.implementation for one in told if not one.is_peer] == ["triton"]


def test_what_a_graph_reads_lives_as_long_as_the_graph(graph_watch):
    read = torch.ones(3)
    alive = weakref.ref(read)
    captured = graph_watch.capture([lambda read=read: read + 1])
    del read
    gc.collect()
    assert alive() is not None
    del captured
    gc.collect()
    assert alive() is None


def test_what_a_peer_makes_to_run_lives_until_its_graphs_are_timed(graph_watch, monkeypatch):
    made = []

    def bind(arguments):
        wide = 2 * arguments[0]
        made.append(weakref.ref(wide))
        return lambda: wide + 1

    def compare(arms):
        assert set(arms) == {"one", "two"}
        assert made
        assert all(one() is not None for one in made)
        return dict.fromkeys(arms, 1e-6)

    monkeypatch.setattr(graph_watch, "compare", compare)
    monkeypatch.setattr(bench, "IMPLEMENTATIONS", ())
    peers = [replace(peer(bind), name=name) for name in ("one", "two")]
    monkeypatch.setattr(bench, "peers_of", lambda op: iter(peers))
    told = Bench(torch.device("cpu"), graph_watch, with_definitions=False).time(a_case(), 4)
    assert [one.implementation for one in told if isinstance(one, Timing)] == ["one", "two"]


def test_a_graph_goes_once_round_all_works_where_that_is_not_too_long(graph_watch):
    seen = []
    works = [lambda n=n: seen.append(n) for n in range(50)]
    assert graph_watch.capture(works).calls == 50
    assert set(seen) == set(range(50))


def test_what_parameters_are_kept_as_is_prepared_before_graphs_are_captured(monkeypatch):
    prepared = set()

    def bind(arguments):
        return lambda: prepared.add(id(arguments[0])) or arguments[0]

    class Watch(FakeWatch):
        def capture(self, works):
            seen.append((len(works), len(prepared)))
            return super().capture(works)

    seen = []
    monkeypatch.setattr(bench, "IMPLEMENTATIONS", ())
    monkeypatch.setattr(bench, "peers_of", lambda op: iter([peer(bind)]))
    Bench(torch.device("cpu"), Watch(), with_definitions=False).time(a_case(), 4)
    assert seen[0] == (FEW_SETS, FEW_SETS), "all works have run, each on inputs of its own"


def test_a_device_on_which_nothing_runs_is_told_from_one_that_works():
    assert Stopwatch(torch.device("cpu")).failure() is None
    assert "meta" in str(Stopwatch(torch.device("meta")).failure())


def test_after_a_fault_of_the_device_the_rest_is_told_as_not_timed(monkeypatch, tmp_path, capsys):
    class Faulty(FakeWatch):
        broken = False

        def compare(self, arms):
            Faulty.broken = True
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

        def failure(self):
            return "RuntimeError: CUDA error" if Faulty.broken else None

    monkeypatch.setattr(bench, "_sizes", lambda ops: [(a_case(), n) for n in (4, 8, 16)])
    monkeypatch.setattr(bench, "HostStopwatch", Faulty)
    file = tmp_path / "bench.json"
    assert bench.main(["--device", "cpu", "--json", str(file)]) == 1
    assert "2 more cases are not timed" in capsys.readouterr().out
    missing = [(row["rows"], row["why"]) for row in json.loads(file.read_text())["missing"]]
    assert missing[0] == (4, "RuntimeError: CUDA error: an illegal memory access was encountered")
    assert missing[1:] == [(8, bench.LOST), (16, bench.LOST)]
    monkeypatch.setattr(bench, "HostStopwatch", FakeWatch)
    later = tmp_path / "later.json"
    bench.main(["--device", "cpu", "--json", str(later), "--beside", str(file)])
    assert {row["rows"] for row in json.loads(later.read_text())["timings"]} == {8, 16}


def test_parameters_that_can_fill_a_cache_get_sets_enough_to_exceed_it():
    [between] = [c for c in RELEASE_CASES if c.op == "between_sublayers"]
    for rows in between.timed_rows:
        held = sets_of(between, rows) * between.cost(rows, VALUE_BYTES).bytes
        assert held > CACHE_BYTES, rows
    assert sets_of(between, 1) > 20  # more than a graph has calls of what needs no more


def test_inputs_that_fill_no_cache_are_made_a_few_times_alone():
    small = a_case()
    assert sets_of(small, 1) == FEW_SETS < MOST_SETS
    assert len(input_sets(small, 1, torch.device("cpu"))) == FEW_SETS
    assert sets_of(a_case(fixed_bytes=2 * CACHE_BYTES), 1) == 2


def test_an_implementation_that_leaves_a_case_to_a_definition_that_waits_is_not_timed(monkeypatch):
    mine = [case for case in TIMED_CASES if case.op == "run_experts"]
    [fp8] = [case for case in mine if case.weights == FP8_EXPERTS]
    assert names_timed(fp8, monkeypatch) == ["triton fp8", "invariant"]
    assert "triton" in names_timed(replace(fp8, waits=False), monkeypatch)
    others = [case for case in mine if case != fp8]
    assert all("triton" in names_timed(case, monkeypatch) for case in others)
    assert {one.op for one in IMPLEMENTATIONS if one.leaves} == {"run_experts"}


def test_a_case_of_few_experts_chooses_among_those_alone_and_counts_their_bytes():
    case = few_experts_case(8, 2, 64, 32, 2, 32)
    x, held, chosen, weights, shared = case.make(40, torch.bfloat16, torch.device("cpu"))
    assert set(chosen.flatten().tolist()) == {-1, 0, 4}
    run = REFERENCE.run_experts(x, held, chosen, weights, shared)
    assert run.isfinite().all()
    one_expert = 3 * 64 * 32 * 17 // 32
    assert case.bytes_shared(40, 2) == 2 * one_expert
    names = [c.name for c in TIMED_CASES]
    assert len(set(names)) == len(names)


def test_a_case_for_which_there_is_no_room_is_told_and_the_bench_goes_on():
    def full(rows, dtype, device):
        raise torch.OutOfMemoryError("no room")

    [told] = Bench(torch.device("cpu"), FakeWatch(), with_definitions=True).time(
        a_case(make=full), 4
    )
    assert (told.implementation, told.why) == ("any", "OutOfMemoryError: no room")


def test_what_an_earlier_document_holds_is_left_out_but_what_came_too_late_is_not(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(bench, "_sizes", lambda ops: [(a_case(), 4), (a_case(), 8)])
    monkeypatch.setattr(bench, "HostStopwatch", FakeWatch)
    first, second, third = (tmp_path / f"{name}.json" for name in "abc")
    arguments = ["--device", "cpu", "--op", "rms_norm"]
    bench.main([*arguments, "--json", str(first), "--rows", "4"])
    bench.main([*arguments, "--json", str(second), "--limit-s", "-1", "--beside", str(first)])
    bench.main([*arguments, "--json", str(third), "--beside", str(first), "--beside", str(second)])
    made = [json.loads(file.read_text()) for file in (first, second, third)]
    assert [{row["rows"] for row in one["timings"]} for one in made] == [{4}, set(), {8}]
    assert [[row["why"] for row in one["missing"]] for one in made] == [[], [bench.LATE], []]


def test_a_peer_that_fails_is_told_with_its_reason_and_the_others_are_timed(monkeypatch):
    def broken(arguments):
        raise RuntimeError("no such kernel\nmore")

    told = times_with(monkeypatch, [peer(broken)])
    assert [type(t) for t in told] == [Missing, Timing]
    assert told[0].why == "RuntimeError: no such kernel"
    assert "no such kernel" in line(told[0])


def test_a_peer_that_cannot_do_a_case_is_left_out(monkeypatch):
    told = times_with(monkeypatch, [peer(lambda arguments: None)])
    assert [t.implementation for t in told] == ["reference"]


def test_the_document_is_json_and_keeps_every_timing_and_every_gap(monkeypatch, tmp_path):
    told = [
        *times_with(monkeypatch, []),
        Missing(op="rms_norm", case="width 8", rows=4, implementation="other", why="absent"),
    ]
    document = BenchDocument(tmp_path / "bench.json", {"format": "kernel bench"})
    add_to(document, told)
    made = json.loads((tmp_path / "bench.json").read_text())
    assert made["format"] == "kernel bench"
    assert made["timings"][0]["cost"] == {"bytes": 160, "flops": 0, "number": "bf16"}
    assert made["missing"] == [
        {
            "op": "rms_norm",
            "case": "width 8",
            "rows": 4,
            "implementation": "other",
            "why": "absent",
        }
    ]


def test_a_copy_without_git_tells_the_commit_of_its_file(tmp_path):
    assert commit(tmp_path) is None
    (tmp_path / "COMMIT").write_text("abc123\n")
    assert commit(tmp_path) == "abc123"


def test_every_case_has_a_cost_at_every_size_that_is_timed():
    for case in (*RELEASE_CASES, *TIMED_CASES):
        assert all(case.cost(rows, 2).bytes > 0 for rows in case.timed_rows)


def test_peers_that_torch_has_compute_what_the_definition_does():
    torch.manual_seed(0)
    x, weight = torch.randn(3, 64), torch.rand(64)
    found = next(p for p in PEERS if (p.op, p.name) == ("rms_norm", "torch"))
    work = found.bind((x, weight, 1e-6))
    assert work is not None
    exact = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight
    torch.testing.assert_close(work(), exact)


def test_every_case_is_taken_once_at_every_size_what_matters_first_and_of_it_small_sizes():
    taken = list(bench._sizes(None))
    cases = (*RELEASE_CASES, *TIMED_CASES)
    assert sorted((c.op, c.name, r) for c, r in taken) == sorted(
        (c.op, c.name, rows) for c in cases for rows in c.timed_rows
    )
    assert len({(c.op, c.name, rows) for c, rows in taken}) == len(taken)
    assert {case.op for case in cases} > bench.FIRST_OPS
    groups = [(case.op not in bench.FIRST_OPS, rows > 128) for case, rows in taken]
    assert groups == sorted(groups)
