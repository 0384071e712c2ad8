"""What `experiments.targets.vllm_engine` uses of vLLM, on no model; WAYS are how it behaves.

The prompt's first id names the way: token i of an answer is i. A request of UNHEARD tokens is
never answered, whatever its prompt.
"""

import os
import signal
import sys
from types import SimpleNamespace

SERVES, NEVER, DIES, POINTS_UP, ENDS_IT, HANGS = range(2, 8)
UNHEARD = 77


class SamplingParams:
    def __init__(self, *, max_tokens, **_):
        self.max_tokens = max_tokens


class LLM:
    def __init__(self, model, **options):
        self.llm_engine = _Engine()


class _Engine:
    def __init__(self):
        self.asked = {}  # id -> [way, most, made]

    def add_request(self, request_id, prompt, params):
        way = prompt["prompt_token_ids"][0]
        self.asked[request_id] = [way, params.max_tokens, 0]

    def has_unfinished_requests(self):
        return bool(self.asked)

    def abort_request(self, request_ids):
        for request_id in request_ids:
            self.asked.pop(request_id)

    def step(self):
        said = [self._said(request_id, *found) for request_id, found in list(self.asked.items())]
        return [one for one in said if one is not None]

    def _said(self, request_id, way, most, made):
        _fails(way)
        if way == NEVER or most == UNHEARD:
            return None
        self.asked[request_id][2] += 1
        reason = "error" if way == ENDS_IT else "length" if made + 1 == most else None
        if reason is not None:
            del self.asked[request_id]
        tokens = [] if way == ENDS_IT else [made]
        completion = SimpleNamespace(token_ids=tokens, finish_reason=reason)
        finished = reason is not None
        return SimpleNamespace(request_id=request_id, outputs=[completion], finished=finished)


def _fails(way):
    if way == DIES:
        sys.stderr.write("no room for one more block\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    if way == HANGS:
        sys.stderr.write("waiting for a lock\n")
        sys.stderr.flush()
        signal.pause()
    if way == POINTS_UP:
        sys.stderr.write("(Worker pid=7) ERROR 11-30 RuntimeError: socket 3 is closed\n")
        sys.stderr.flush()
        try:
            raise ValueError("a rank went away")
        except ValueError as error:
            raise RuntimeError("See stack trace (above) for the root cause.") from error
