"""A program that behaves as another engine's server may: well, or in one of many bad ways.

`python engine_program.py MODE --port N ...` serves the protocol of `null_server` under whatever
other options it is given. It runs outside the test process, as a server does.
"""

import argparse
import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.targets.http_answers import Usage, chunk, closing, opening
from experiments.targets.null_server import Act, Answer, StandInServer


def counted(ask):
    """Token i of an answer has id i: greedy, and the same whoever serves it."""
    api, most = ask.api, ask.output_tokens
    acts = [Act(data=opening(api, ask.prompt_tokens) or b": hello\n\n")]
    for made in range(1, most + 1):
        usage = Usage(prompt=ask.prompt_tokens, output=made)
        data = chunk(api, " a", usage=usage, token_ids=[made - 1])
        acts.append(Act(delay_s=0.001, data=data, tokens=1))
    acts.append(Act(data=closing(api, Usage(prompt=ask.prompt_tokens, output=most))))
    return Answer(acts=acts)


def dying_after(count):
    def script(ask):
        if ask.number >= count:
            sys.stderr.write("out of luck\n")
            sys.stderr.flush()
            signal.raise_signal(signal.SIGKILL)
        return counted(ask)

    return script


async def serve(mode, port):
    server = StandInServer(dying_after(3) if mode == "dies" else counted)
    await server.start(port)
    sys.stdout.write(f"serves on {port}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", nargs="?", default="well")
    parser.add_argument("--port", type=int, required=True)
    found, _ = parser.parse_known_args()
    if found.mode == "crashes":
        sys.exit("no such model\n")
    if found.mode == "hangs":
        time.sleep(600)
    if found.mode == "floods":
        for line in range(200_000):
            sys.stderr.write(f"line {line} {'x' * 80}\n")
    if found.mode == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if found.mode == "parent":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        sys.stdout.write(f"child {child.pid}\n")
    if found.mode == "slow":
        time.sleep(1.5)
    asyncio.run(serve(found.mode, found.port))


if __name__ == "__main__":
    main()
