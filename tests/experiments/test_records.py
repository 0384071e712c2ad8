"""What a trial is made of must stay small: its requests are held until it is stored."""

import pickle
import tracemalloc

from experiments.records import Chunk
from tests.experiments.records import request

CHUNKS = 1000


def test_a_chunk_takes_little_memory_so_that_long_trials_fit():
    # vllm-project/vllm 14879: the details of a long run were too big to hold.
    times = [0.001 * k for k in range(CHUNKS)]
    tracemalloc.start()
    chunks = tuple(Chunk(time_s=time_s, tokens=1) for time_s in times)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(chunks) == CHUNKS
    assert taken / CHUNKS < 100


def test_a_record_comes_through_a_pipe_as_it_was():
    sent = request([(0.1, 1), (0.2, 3)], accepted_by_position=(2, 1))
    assert pickle.loads(pickle.dumps(sent)) == sent
