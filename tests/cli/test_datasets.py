import csv
from pathlib import Path

from own_files import write_people


def test_lists_every_dataset_within_80_columns(hkconv):
    from hkconv.data import describe

    result = hkconv("datasets")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    for info in describe():
        assert any(line.split()[0] == info.name for line in lines), info.name
    assert max(map(len, lines[:-1])) <= 80
    assert "\x1b" not in result.stdout


def test_says_what_is_there(hkconv, tmp_path):
    folder = tmp_path / "wikipedia_filtered"
    folder.mkdir()
    (folder / "chameleon_filtered.npz").touch()
    rows = {line.split()[0]: line.split()[-1] for line in hkconv("datasets", "--data", tmp_path).stdout.splitlines()}
    assert rows["tree"] == "embedded"
    assert rows["chameleon-filtered"] == "wikipedia_filtered"
    assert rows["squirrel-filtered"] == "-wikipedia_filtered"
    assert rows["texas"] == "+webkb/texas"


def test_a_data_root_that_does_not_exist(hkconv):
    assert "nowhere" in hkconv.fails("datasets", "--data", "nowhere")


def test_own_data_are_described(hkconv):
    write_people(Path("people"), count=100)
    lines = hkconv("datasets", "people").stdout.splitlines()
    with open("people/edges.csv", newline="", encoding="utf-8") as file:
        links = {frozenset(row) for row in list(csv.reader(file))[1:] if row[0] != row[1]}
    assert lines[2].split()[:7] == ["people", "node", "1", "100", str(len(links)), "7", "3"]
    assert lines[3] == "people: labels: 60 of 100 nodes have one"
    assert any("taken as names" in line for line in lines)
    assert "own data nowhere do not exist" in hkconv.fails("datasets", "nowhere")
