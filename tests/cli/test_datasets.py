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
