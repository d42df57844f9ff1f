"""The program that makes mutants, on a package of one module."""

import subprocess

import mutants
import pytest
import yaml

SIGN = '''"""Signs."""


def sign(x: int = 0) -> int:
    """Of a number."""
    if x > 5:
        raise ValueError(f"at most {5}, got {x + 1}")
    return 1 if x > 0 else -1
'''
TEST = """from hkconv.toy.sign import sign


def test_sign():
    assert sign(3) == 1 and sign(-3) == -1
"""
FILES = {"hkconv/__init__.py": "", "hkconv/toy/sign.py": SIGN, "tests/toy/test_sign.py": TEST}
SURVIVORS = {
    ("def sign(x: int = 0) -> int:", "def sign(x: int = 1) -> int:"),
    ("def sign(x: int = 0) -> int:", "def sign(x: int = -1) -> int:"),
    ("if x > 5:", "if (x >= 5):"),
    ("if x > 5:", "if x > 6:"),
    ("if x > 5:", "if x > 4:"),
    ('raise ValueError(f"at most {5}, got {x + 1}")', "pass"),
    ("return 1 if x > 0 else -1", "return 1 if (x >= 0) else -1"),
    ("return 1 if x > 0 else -1", "return 1 if x > 1 else -1"),
    ("return 1 if x > 0 else -1", "return 1 if x > -1 else -1"),
}
KILLED = {
    ("if x > 5:", "if (x <= 5):"),
    ("return 1 if x > 0 else -1", "return None"),
    ("return 1 if x > 0 else -1", "return 1 if (x <= 0) else -1"),
    ("return 1 if x > 0 else -1", "return 2 if x > 0 else -1"),
    ("return 1 if x > 0 else -1", "return 0 if x > 0 else -1"),
    ("return 1 if x > 0 else -1", "return 1 if x > 0 else (1)"),
    ("return 1 if x > 0 else -1", "return 1 if x > 0 else -2"),
    ("return 1 if x > 0 else -1", "return 1 if x > 0 else -0"),
}


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def changes(found):
    return {(mutant.old, mutant.new) for mutant in found}


def make(project, *arguments):
    out = project.parent / "mutants.jsonl"
    return mutants.main([*arguments, "--workers", "2", "--out", str(out)], project, ["pytest"])


def lines_of(text, *words):
    return [line for line in text.splitlines() if any(word in line for word in words)]


def test_every_kind_of_fault_is_made_and_words_types_and_errors_are_left_alone(project):
    found = mutants.choose(["toy"], None, project)
    assert changes(found) == SURVIVORS | KILLED
    assert {mutant.line for mutant in found} == {4, 6, 7, 8}


@pytest.mark.parametrize(
    "source, expected",
    [
        ("a = b[i:]", {"a = b[i + 1:]"}),
        ("a = b[:i]", {"a = b[:i - 1]"}),
        ("a = min(b)", {"a = max(b)"}),
        ("a = b.amax()", {"a = b.amin()"}),
        ("a = b and c", {"a = (b or c)"}),
        ("a = not b", {"a = (b)"}),
        ("a += b", {"pass", "a -= b"}),
        ("a = torch.where(b, c, d)", {"a = (c)", "a = (d)"}),
        ("a = b * c", {"a = (b / c)"}),
        ("a = c if b else d", {"a = c if (not b) else d"}),
        ("while b:\n    break", {"while (not b):", "pass"}),
        ("a.b = c", {"pass"}),
        ("f(c)", {"pass"}),
        ("a: Literal[3] = True", {"a: Literal[3] = False"}),
        ("a = 'é' in b", {"a = ('é' not in b)"}),
        ("@njit(fastmath=True)\ndef f():\n    pass", set()),
    ],
)
def test_faults(tmp_path, source, expected):
    (tmp_path / "module.py").write_text(source, encoding="utf-8")
    assert {mutant.new for mutant, _ in mutants.mutants_of(tmp_path / "module.py", tmp_path)} == expected


def test_survivors_are_reported_explained_and_tried_again(project, capsys):
    before = {path: path.read_bytes() for path in project.rglob("*.py")}
    assert make(project, "toy", "--count", "6", "--seed", "1") == 1
    first = capsys.readouterr().out
    drawn = len(lines_of(first, "SURVIVED")) + len(lines_of(first, " killed by tests/toy/test_sign.py::test_sign"))
    assert drawn == 6 and lines_of(first, "SURVIVED") and lines_of(first, " killed by")
    shown = lines_of(first, "  + ")
    assert set(shown) <= {f"  + {new}" for _, new in SURVIVORS}
    assert {path: path.read_bytes() for path in project.rglob("*.py")} == before
    # A test that kills what it can, and a reason for the rest; the dead of before are not tried again.
    with (project / "tests/toy/test_sign.py").open("a") as file:
        file.write("    assert sign(0) == -1 and sign(1) == 1 and sign() == -1 and sign(5) == 1\n")
        file.write("    import pytest\n    with pytest.raises(ValueError):\n        sign(6)\n")
    unchanged = {"file": "hkconv/toy/sign.py", "why": "-1 is negative as 0 is none"}
    entries = [{**unchanged, "old": old, "new": new} for old, new in SURVIVORS if new.startswith("def")]
    (project / mutants.EXPLAINED).write_text(yaml.safe_dump(entries))
    assert make(project, "toy", "--count", "6", "--seed", "1") == 0
    second = capsys.readouterr().out
    assert f"6 mutants, {6 - len(shown)} known to be dead" in second
    assert not lines_of(second, "SURVIVED")


def test_a_mutant_that_never_ends_is_killed_and_the_difference_to_a_revision_is_enough(project, capsys, monkeypatch):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *command], cwd=project, check=True)
    path = project / "hkconv/toy/sign.py"
    path.write_text(SIGN.replace("    return 1", "    while x > 7:\n        x -= 1\n    return 1"))
    test = project / "tests/toy/test_sign.py"
    test.write_text(TEST.replace("def test", "def test_never():\n    assert sign(3) == 1\n\n\ndef test"))
    monkeypatch.setattr(mutants, "LEAST_SECONDS", 1)
    found = mutants.choose([], "HEAD", project)
    assert {mutant.line for mutant in found} == {8, 9}
    assert {new for _, new in changes(found)} >= {"while (x <= 7):", "pass", "x += 1"}
    make(project, "--count", "100")
    printed = capsys.readouterr().out
    assert len(lines_of(printed, "sign.py:8 killed by time")) == 1


def test_tests_that_fail_without_a_fault_are_told(project):
    (project / "tests/toy/test_sign.py").write_text(TEST.replace("== 1", "== 2"))
    with pytest.raises(SystemExit, match=r"without any fault tests/toy/test_sign\.py::test_sign fails"):
        make(project, "toy", "--count", "1")


def test_the_tests_of_a_module_come_before_those_of_its_room_and_of_its_readers():
    own, kin, readers = mutants.stages("hkconv/geometry/maps.py", mutants.ROOT)
    assert own == ["tests/geometry/test_maps.py"]
    assert "tests/geometry/test_relative.py" in kin and own[0] not in kin
    assert "tests/engine/test_optimizer.py" in readers and not set(readers) & {*own, *kin}
    assert mutants.stages("hkconv/data/four_points.py", mutants.ROOT)[0] == ["tests/data/test_hyperbolicity.py"]


def test_an_unknown_place_is_refused(project):
    with pytest.raises(SystemExit, match="geometri is neither a room of hkconv nor a file"):
        make(project, "geometri")


def test_mutants_that_no_test_meets_survive(project, capsys):
    (project / "tests/toy/test_sign.py").unlink()
    assert make(project, "toy", "--count", "4") == 1
    assert "toy: 0 of 4 killed" in capsys.readouterr().out
