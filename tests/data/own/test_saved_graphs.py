import io
import os
import pickle
import re
import zipfile

import pytest
import torch
from fuzzing import damaged, fuzzed
from torch_geometric.data import Data

from hkconv.data.own.saved_graphs import read_saved_graphs
from hkconv.errors import InputError


def saved(folder, content):
    path = folder / "graphs.pt"
    torch.save(content, path)
    return path


def graph(**more):
    return Data(**{"x": torch.tensor([[1.0], [2], [3]]), "edge_index": torch.tensor([[0, 1], [1, 2]]), **more})


def refused(message):
    return pytest.raises(InputError, match=re.escape(message))


def test_one_graph(tmp_path):
    masks = {f"{name}_mask": torch.eye(3)[:, [place, 2 - place]].bool() for place, name in enumerate(("train", "val"))}
    masks["test_mask"] = torch.zeros(3, 2).bool()
    content = graph(
        y=torch.tensor([5, -1, 7]), edge_weight=torch.tensor([1.0, 0.5]).bfloat16(), pos=torch.ones(3, 2), **masks
    )
    own = read_saved_graphs(saved(tmp_path, content))
    (found,) = own.graphs
    assert found.x.tolist() == [[1], [2], [3]] and found.edge_index.tolist() == [[0, 1], [1, 2]]
    assert found.edge_weight.tolist() == [1, 0.5] and "pos" not in found
    assert (own.task, own.ids, own.labels) == ("node", ["0", "1", "2"], ["5", "", "7"])
    assert [split["train"].tolist() for split in own.splits] == [[0], [2]]
    named = read_saved_graphs(saved(tmp_path, graph(ids=["x", "y", "z"])))
    assert named.ids == ["x", "y", "z"] and named.labels == ["", "", ""] and named.splits is None


def test_many_graphs(tmp_path):
    own = read_saved_graphs(saved(tmp_path, [graph(y=1), graph(y=torch.tensor([0]), ids="b"), graph()]))
    assert (own.task, own.ids, own.labels) == ("graph", ["0", "b", "2"], ["1", "0", ""])
    assert [found.x.tolist() for found in own.graphs] == [[[1], [2], [3]]] * 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"x": torch.ones(2)}, "must hold a PyG Data or a list of them, got dict"),
        ([], "got a list of nothing"),
        ([graph(), torch.ones(1)], "got a list of Data, Tensor"),
        ([graph(), Data(x=torch.ones(1, 2), edge_index=torch.zeros(2, 0).long())], "has 2 features, but graph 0 has 1"),
        ([graph(), graph(edge_weight=torch.ones(2))], "must both have an edge_weight, or neither"),
        (
            [graph(edge_attr=torch.ones(2, 1)), graph(edge_attr=torch.ones(2, 2))],
            "as many columns of edge_attr, or both",
        ),
        ([graph(), graph(edge_attr=torch.ones(2, 1))], "graph 0 must have as many columns of edge_attr, or both none"),
        ([graph(ids="a"), graph(ids="a")], "'a' of row 1 was already in row 0"),
        (Data(x=torch.ones(2, 1)), "must hold edge_index, got x"),
        (graph(y=torch.ones(2)), "must be 3 numbers or names, got float32"),
        ([graph(y=torch.ones(1, 2)), graph(y=torch.ones(1, 3))], "has 3 entries, but graph 0 2"),
        ([graph(y=torch.ones(1, 2)), graph(y=torch.full((1, 2), 7))], "has 2 columns: they must be answers"),
        (graph(ids=[["a"], "b", "c"]), "ids of "),
        (graph(x=torch.ones(3, 1).to_sparse()), "it asks for torch._utils._rebuild_sparse_tensor"),
    ],
)
def test_other_content_is_refused(tmp_path, content, message):
    with refused(message):
        read_saved_graphs(saved(tmp_path, content))


class Bomb:
    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


@pytest.mark.parametrize("wrap", [lambda bomb: bomb, lambda bomb: [graph(), bomb], lambda bomb: graph(note=bomb)])
def test_a_pickle_that_would_run_a_command_is_refused_and_does_not_run(tmp_path, wrap):
    path = saved(tmp_path, wrap(Bomb(tmp_path / "exploded")))
    with refused("graphs.pt is refused: it asks for posix.mkdir, which a graph of tensors does not need"):
        read_saved_graphs(path)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_plain_pickles_are_refused_and_do_not_run(tmp_path, protocol):
    path = tmp_path / "graphs.pt"
    path.write_bytes(pickle.dumps(Bomb(tmp_path / "exploded"), protocol=protocol))
    with refused("graphs.pt is not a file of torch.save"):
        read_saved_graphs(path)
    torch.save(Bomb(tmp_path / "exploded"), path, pickle_protocol=protocol)
    with refused("graphs.pt is refused: it asks for"):
        read_saved_graphs(path)
    torch.save(Bomb(tmp_path / "exploded"), path, _use_new_zipfile_serialization=False)
    with refused("graphs.pt is not a file of torch.save"):
        read_saved_graphs(path)
    assert not (tmp_path / "exploded").exists()


def test_classes_that_pyg_allows_but_that_open_files_are_refused(tmp_path):
    """PyG puts ClusterData on PyTorch's list; built with a folder, it opens a pickle there without any list."""
    from torch_geometric.loader import ClusterData

    class Opener:
        def __reduce__(self):
            return ClusterData, (graph(), 2, False, str(tmp_path))

    with refused("it asks for torch_geometric.loader.cluster.ClusterData"):
        read_saved_graphs(saved(tmp_path, Opener()))


def test_reading_leaves_the_list_of_allowed_names_as_it_was(tmp_path):
    before = set(torch.serialization.get_safe_globals())
    read_saved_graphs(saved(tmp_path, graph()))
    assert set(torch.serialization.get_safe_globals()) == before and Data in before


def test_an_object_with_a_state_that_its_class_never_has(tmp_path):
    broken = graph()
    broken.__dict__["_store"] = 3
    with refused("graphs.pt is not"):
        read_saved_graphs(saved(tmp_path, broken))


def sound():
    buffer = io.BytesIO()
    torch.save([graph()], buffer)
    return buffer.getvalue()


@fuzzed(content=damaged(sound()))
def test_damaged_files_give_input_errors_alone(tmp_path, content):
    path = tmp_path / "fuzzed.pt"
    path.write_bytes(content)
    try:
        read_saved_graphs(path)
    except InputError as error:
        assert str(path) in str(error)


def program_of(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("data.pkl")]
        return archive.read(name)


@fuzzed(program=damaged(program_of(sound())))
def test_any_program_in_a_sound_archive_gives_input_errors_alone(tmp_path, program):
    """The tensors are there; the pickle that puts them together is anything."""
    path = tmp_path / "program.pt"
    with zipfile.ZipFile(path, "w") as archive, zipfile.ZipFile(io.BytesIO(sound())) as original:
        for name in original.namelist():
            archive.writestr(name, program if name.endswith("data.pkl") else original.read(name))
    try:
        read_saved_graphs(path)
    except InputError as error:
        assert str(path) in str(error)


def test_numbers_and_answers_of_graphs(tmp_path):
    own = read_saved_graphs(saved(tmp_path, [graph(y=torch.tensor([1.0])), graph(y=2.5), graph(), graph(y=0.0)]))
    assert (own.metric, own.questions, own.labels) == ("R2", ("target",), ["1.0", "2.5", "", "0.0"])
    rows = [torch.tensor([[1.0, torch.nan]]), torch.tensor([[0.0, 1.0]])]
    own = read_saved_graphs(saved(tmp_path, [graph(y=rows[0]), graph(), graph(y=rows[1])]))
    assert (own.metric, own.questions, own.labels) == ("ROC-AUC", ("0", "1"), ["1,", "", "0,1"])
    own = read_saved_graphs(saved(tmp_path, graph(y=torch.tensor([0.5, 1.5, torch.nan]))))
    assert (own.task, own.metric, own.labels) == ("node", "R2", ["0.5", "1.5", ""])
