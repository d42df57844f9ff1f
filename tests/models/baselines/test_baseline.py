import pytest

from hkconv.errors import InputError
from hkconv.models import GCN, HGCN, HKN, MLP, HyboNet


@pytest.mark.parametrize("model", [GCN, HGCN, MLP, HKN, HyboNet])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "edge"}, "task must be one of node, graph, link, got 'edge'"),
        ({"num_classes": 1, "task": "graph"}, "num_classes must be at least 2 for the graph task, got 1"),
        ({"num_classes": None}, "num_classes must be at least 2 for the node task, got None"),
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_built(model, change, message):
    with pytest.raises(InputError, match=message):
        model(**{"in_features": 5, "hidden_dim": 4, "num_classes": 3, "num_layers": 2, **change})


@pytest.mark.parametrize("model", [GCN, HGCN, MLP, HyboNet])
def test_width_must_be_positive(model):
    with pytest.raises(InputError, match="hidden_dim must be at least 1, got 0"):
        model(5, 0, 3, num_layers=2)
