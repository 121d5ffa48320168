"""How far the closed form is from iterations that were measured on real clusters.

    python benchmarks/measured_plans.py --profiles DATA/pipelines/sailor

Reads the measured plans below ``validation`` of a folder of public profiles; one of them is known
to be corrupt and left out. An error is the predicted time over the measured one, minus one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from generated import run

from arachne_opt.importers.measured_plans import accuracy


def main() -> None:
    """Prints a line for each model on each cluster, and one for all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profiles", type=Path, required=True, help="folder of profiles")
    print("model and cluster           plans   mean error   median    bias    worst")
    for group, found in accuracy(parser.parse_args().profiles).items():
        print(
            f"{group:26} {found.runs:>6} {found.mean_abs:>11.1%} {found.median_abs:>9.1%} "
            f"{found.bias:>+7.1%} {found.worst:>+8.1%}  {found.worst_name}"
        )


if __name__ == "__main__":
    run(main)
