from pathlib import Path

from own_files import write_people


def test_a_screen_with_one_command(hkconv):
    write_people(Path("my people"), count=90)
    result = hkconv("advise", "my people", "--seconds", 0.1, "--device", "cpu")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert len(lines) < 25 and max(map(len, lines)) <= 80
    assert [line for line in lines if line.startswith("next: ")] == [lines[-1]]
    assert lines[-1].startswith("next: hkconv train 'my people' --models hkn")
    shown = result.stdout
    for word in ("homophily", "delta", "direction", "duplicates", "missing values: age", "+ cut short"):
        assert word in shown
    assert "test" not in shown and sorted(path.name for path in Path().iterdir()) == ["my people"]


def test_what_cannot_be_looked_at(hkconv):
    assert "own data nowhere/at all do not exist" in hkconv.fails("advise", "nowhere/at all")
    assert "seconds must be" in hkconv.fails("advise", "tree", "--seconds", 0)
