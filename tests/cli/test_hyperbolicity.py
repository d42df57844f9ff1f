from pathlib import Path

import numpy as np
import pytest

from hkconv.data import hyperbolicity
from hkconv.data.hyperbolicity import DeltaProgress

HEXAGON = "source,target\nanna,bert\nbert,carl\ncarl,dora\ndora,emil\nemil,fred\nfred,anna\nfred,gina\n"


def test_a_real_dataset(hkconv, real_data):
    result = hkconv("hyperbolicity", "Texas", "--data", real_data)
    assert result.exit_code == 0
    heading, _, row = result.stdout.splitlines()
    assert heading.split() == ["graph", "nodes", "edges", "component", "delta", "quadruple", "seconds"]
    assert row.split()[:6] == ["texas", "183", "279", "183", "1.5", "exact"]
    assert len(row.split()) == 6 + 4 + 1


def test_a_tree_needs_no_file(hkconv):
    assert hkconv("hyperbolicity", "tree").stdout.splitlines()[-1].split()[4:7] == ["0", "exact", "any"]


def test_a_file_of_edges(hkconv):
    Path("friends.csv").write_text(HEXAGON)
    result = hkconv("hyperbolicity", "friends.csv")
    assert result.exit_code == 0
    row = result.stdout.splitlines()[-1].split()
    assert row[:6] == ["friends.csv", "7", "7", "7", "1", "exact"]
    assert set(row[6:10]) < {"anna", "bert", "carl", "dora", "emil", "fred"}
    assert result.stderr == "friends.csv: the first line is a heading\n"


def test_long_names_fit_a_terminal(hkconv):
    names = [f"a-name-of-{'many-' * 4}words-{node}" for node in range(8)]
    Path("long.csv").write_text("\n".join(f"{a},{b}" for a, b in zip(names, names[1:] + names[:1])))
    lines = hkconv("hyperbolicity", "long.csv").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[2].split()[4:6] == ["2", "exact"]


def test_components_are_explained(hkconv):
    Path("two.csv").write_text("1,2\n2,3\n3,4\n4,1\n10,11\n11,12\n12,13\n13,14\n14,15\n")
    result = hkconv("hyperbolicity", "two.csv")
    assert "two.csv     10      9          4      1  exact" in result.stdout
    assert result.stdout.splitlines()[-1] == "2 components: the one with the largest delta has 4 nodes."


def test_a_sample_is_labelled(hkconv):
    Path("ring.csv").write_text("\n".join(f"{node},{(node + 1) % 400}" for node in range(400)))
    row = hkconv("hyperbolicity", "ring.csv", "--sample", 30, "--seed", 1).stdout.splitlines()[-1].split()
    assert row[5] == "to" and row[7] == "bounds"
    assert float(row[4]) < 100 <= float(row[6])


def test_many_graphs(hkconv, real_data):
    result = hkconv("hyperbolicity", "ptc", "--data", real_data)
    assert result.exit_code == 0
    heading, _, row = result.stdout.splitlines()
    assert heading.split() == ["dataset", "graphs", "nodes", "edges", "mean", "delta", "largest", "seconds"]
    assert row.split()[:7] == ["ptc", "344", "8792", "8931", "0.7253", "3", "exact"]


def test_ctrl_c_prints_the_bounds(hkconv, monkeypatch):
    def interrupted(edge_index, num_nodes, *, report, **options):
        report(DeltaProgress(1.5, 4.0, "pairs 8 apart", 0.2))
        raise KeyboardInterrupt

    monkeypatch.setattr(hyperbolicity, "gromov_delta", interrupted)
    result = hkconv("hyperbolicity", "tree")
    assert result.exit_code == 130
    assert result.stdout == "interrupted: delta of tree is 1.5 to 4\n"


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["txas"], "did you mean texas?"),
        (["nothing.csv"], "nothing.csv cannot be read"),
        (["bad.csv"], "bad.csv, line 2: "),
        (["tree", "--sample", 3], "sample must be a whole number of at least 4"),
        (["texas", "--data", "nowhere"], "nowhere"),
    ],
)
def test_bad_input(hkconv, arguments, words):
    Path("bad.csv").write_text("1,2\n1;3\n")
    assert words in hkconv.fails("hyperbolicity", *arguments)


def test_own_folders_and_archives(hkconv):
    Path("ring").mkdir()
    Path("ring/nodes.csv").write_text("id,f\n" + "".join(f"n{node},1\n" for node in range(12)))
    Path("ring/edges.csv").write_text("source,target\n" + "".join(f"n{n},n{(n + 1) % 12}\n" for n in range(12)))
    nodes = np.arange(12)
    np.savez("ring.npz", x=np.ones((12, 1)), edge_index=np.stack([nodes, (nodes + 1) % 12]))
    for path in ("ring", "ring.npz"):
        row = hkconv("hyperbolicity", path).stdout.splitlines()[2].split()
        assert row[:6] == ["ring", "12", "12", "12", "3", "exact"]
