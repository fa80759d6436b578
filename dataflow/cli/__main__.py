"""`python -m dataflow.cli` is the `dataflow` command."""

from __future__ import annotations

from dataflow.cli import app

app(prog_name="dataflow")
