"""What SECURITY.md promises of the source and of what it stands on."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "hkconv").rglob("*.py"))

# Known holes that do not concern us, each with the reason why.
ACCEPTED: dict[str, str] = {}


def test_bandit_finds_nothing():
    command = [sys.executable, "-m", "bandit", "-q", "-c", "pyproject.toml", "-r", "hkconv"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_exception_to_bandit_names_its_rule_and_has_a_reason():
    """The reason is the comment above."""
    found = 0
    for path in SOURCES:
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            if "nosec" in line:
                assert re.search(r"# nosec B\d{3}( B\d{3})*$", line), f"{path}:{number + 1}"
                above = [before.strip() for before in lines[max(0, number - 3) : number]]
                assert any(before.startswith("# ") for before in above), f"{path}:{number + 1}"
                found += 1
    assert found > 0


@pytest.mark.parametrize(
    "pattern, reason",
    [
        (r"\bpickle\.(load|loads|Unpickler)\b|^import pickle$", "a pickle is a program"),
        (r"allow_pickle\s*=\s*True", "a pickle is a program"),
        (r"weights_only\s*=\s*False", "a pickle is a program"),
        (r"torch\.load\((?!.*weights_only=True)", "torch.load without weights_only unpickles"),
        (r"yaml\.(load|full_load|unsafe_load)(_all)?\(", "only yaml.safe_load makes plain data alone"),
        (r"\b(eval|exec)\(", "data are not programs"),
        (r"shell\s*=\s*True|os\.system\(", "a shell reads more than was meant"),
        (r"\.extractall\(|shutil\.unpack_archive", "members of an archive may lead out of their folder"),
        (r"trust_remote_code\s*=\s*True", "a model is no program"),
    ],
)
def test_what_runs_data_is_not_used(pattern, reason):
    uses = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in SOURCES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        # A module's evaluation mode is no program.
        if re.search(pattern, line) and not re.search(r"\.eval\(|def |^\s*#|``", line)
    ]
    assert uses == [], reason


@pytest.mark.nightly
def test_no_dependency_has_a_known_hole():
    """Asks the Python Packaging Advisory Database, for which it needs a network."""
    command = [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off", "--skip-editable"]
    done = subprocess.run(command, capture_output=True, text=True)
    if not done.stdout.strip():
        pytest.skip(f"the database cannot be asked: {done.stderr.strip().splitlines()[-1]}")
    found = json.loads(done.stdout)["dependencies"]
    audited = [entry for entry in found if "vulns" in entry and "skip_reason" not in entry]
    if not audited:
        pytest.skip(f"the database cannot be asked: {found[0]['skip_reason']}")
    holes = {
        f"{entry['name']} {entry['version']}: {hole['id']}, mended in {', '.join(hole['fix_versions']) or 'no version'}"
        for entry in audited
        for hole in entry["vulns"]
        if hole["id"] not in ACCEPTED
    }
    assert not holes
