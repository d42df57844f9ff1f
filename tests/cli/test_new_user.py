"""A new user's path with a table of their own: advise, train, predict the newcomers, explore."""

import csv
import os
import subprocess
import sys
from pathlib import Path

from own_files import check_screens, write_people


def test_from_a_table_to_predictions():
    """The nightly tests walk the same path with an installed wheel and without an option, which takes minutes."""
    write_people(Path("people"))

    def screen(*arguments):
        # One thread: several that wait for each other take many times as long while other tests run.
        result = subprocess.run(
            [sys.executable, "-m", "hkconv", *arguments],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    check_screens(screen, advise=("--seconds", "2"), train=("--num-splits", "1"))
    with open("predictions.csv", newline="", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 300
