import torch

from hkconv.models.baselines.relations import map_by_relation, sum_over_relations, union_of
from hkconv.ops.edge_sums import neighbor_sum


def test_sums_over_the_neighbours_of_each_relation(dtype, generator):
    source, target = torch.tensor([0, 1, 2, 0, 0, 3]), torch.tensor([1, 2, 0, 1, 1, 3])
    relation = torch.tensor([0, 2, 1, 1, 0, 2])
    x, weight = torch.randn(4, 3, generator=generator).to(dtype), torch.randn(3, 3, 2, generator=generator).to(dtype)
    edges = union_of(source, target, relation, 3, 4)
    summed = neighbor_sum(map_by_relation(x, weight), None, edges)
    expected = torch.zeros(3, 4, 2, dtype=dtype)
    for j, i, r in zip(source, target, relation):
        expected[r, i] += x[j] @ weight[r]
    torch.testing.assert_close(summed.view(3, 4, 2), expected)
    torch.testing.assert_close(sum_over_relations(summed, 3), expected.sum(0))
