"""What an engine says, as plain lists."""

from engine.request import Request


def texts(engine, asked):
    """What an engine says to each (prompt, params), its books held to integrity at every step."""
    found = {str(i): [] for i in range(len(asked))}
    for i, (prompt, params) in enumerate(asked):
        engine.add_request(Request(request_id=str(i), prompt_token_ids=prompt, sampling=params))
    while engine.has_unfinished():
        for output in engine.step():
            found[output.request_id] += output.token_ids
        engine.check_integrity()
    return list(found.values())
