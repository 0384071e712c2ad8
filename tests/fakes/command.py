"""The command line in this process."""

import json

from typer.testing import CliRunner, Result

from workbench.cli import app


def workbench(*arguments) -> Result:
    """What `workbench ARGUMENTS` gives."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def last_json(result: Result):
    """The document that a command printed as its last line."""
    return json.loads(result.stdout.rstrip().splitlines()[-1])
