"""Steps of a process that only serves are not held up by a search for garbage."""

import json
import subprocess
import sys

COUNT = """
import gc, json
from engine.collector import calm_collector
from engine.host_bench import HostSteps

host = HostSteps(requests=256, draft_length=0, steps=100, graphs="auto")
found = []
gc.callbacks.append(lambda phase, about: found.append(phase))

def searches():
    found.clear()
    for _ in range(40):
        host.step()
    return found.count("start")

gc.set_threshold(20)  # as where much is made beside the steps
before = searches()
calm_collector()
print(json.dumps([before, searches(), gc.get_freeze_count()]))
"""


def test_no_search_for_garbage_falls_into_the_steps_of_a_calm_process():
    said = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True)
    before, after, set_aside = json.loads(said.stdout)
    assert before > 0
    assert after == 0
    assert set_aside > 10_000
