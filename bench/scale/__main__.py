"""`python -m bench.scale`: see docs/scale.md."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from bench.measure import DATA
from bench.scale.calibrate import calibrate
from bench.scale.costs import Costs
from bench.scale.inputs import Assumed, Workload
from bench.scale.report import report
from bench.scale.scenario import Effort, Scenario
from bench.scale.validate import validate

GPUS = "8,64,512,1024,4096"


def main(
    gpus: Annotated[str, typer.Option(help="Numbers of GPUs.")] = GPUS,
    costs_file: Annotated[
        Path | None, typer.Option("--costs", help="Costs that were measured; read from there, or measured and kept.")
    ] = None,
    assume: Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE: assume this, or choose it.")] = None,
    hedge: Annotated[float, typer.Option(help="Percentile of the latency after which a request is made again.")] = 95,
    sensitivity: Annotated[int, typer.Option(help="GPUs of the runs with assumptions halved and doubled.")] = 4096,
    seed: Annotated[int, typer.Option(help="Of all that is drawn.")] = 0,
    compare: Annotated[bool, typer.Option("--validate", help="Compare with real loaders on this machine.")] = False,
    rounds: Annotated[int, typer.Option(help="Repeats of calibration and comparison.")] = 1,
    data: Annotated[Path, typer.Option(help="Where datasets are kept.")] = DATA,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures there.")] = None,
) -> None:
    """Simulates a training job of thousands of GPUs that read through dataflow."""
    costs = _costs(costs_file, data, rounds)
    if compare:
        validate(costs, data, rounds, json_file)
        return
    workload, assumed = _settings(assume or [])
    scenario = Scenario(workload, costs, Effort(seed=seed))
    report(scenario, assumed, [int(number) for number in gpus.split(",")], hedge, sensitivity, json_file)


def _costs(file: Path | None, data: Path, rounds: int) -> Costs:
    if file is not None and file.is_file():
        return Costs.load(file)
    costs = calibrate(data, rounds)
    if file is not None:
        costs.save(file)
    return costs


def _settings(settings: list[str]) -> tuple[Workload, Assumed]:
    workload, assumed = Workload(), Assumed()
    for setting in settings:
        name, _, value = setting.partition("=")
        if name in Workload.__slots__:
            kind = type(getattr(workload, name))
            workload = replace(workload, **{name: kind(value)})
        elif name in Assumed.__slots__:
            assumed = replace(assumed, **{name: float(value)})
        else:
            names = ", ".join((*Workload.__slots__, *Assumed.__slots__))
            raise typer.BadParameter(f"there is no {name!r} to set, only {names}")
    return workload, assumed


if __name__ == "__main__":
    typer.run(main)
