import torch

from hkconv.data import Split
from hkconv.tasks.many import ManyNodeTask, train_cells
from hkconv.tasks.recipe import make_recipe
from hkconv.tasks.run import train_cell
from hkconv.tasks.summary import Cell
from hkconv.tasks.tasks import NodeTask

CPU = torch.device("cpu")


def test_scores_are_those_of_the_tasks_of_single_splits(tree, dtype, generator):
    first, second = tree.splits
    splits = [first, Split(second.train[:9], second.val[:7], second.test), first]
    reference = torch.empty(0, dtype=dtype)
    many = ManyNodeTask(tree, splits, reference)
    outputs = torch.randn(3, tree.graph.num_nodes, tree.num_classes, dtype=dtype, generator=generator)
    for part in ("train", "val", "test"):
        losses, metrics = (measure(outputs, part, torch.arange(3)) for measure in (many.losses, many.metrics))
        for number, split in enumerate(splits):
            network = torch.nn.Module()
            network.forward = lambda *_, number=number: outputs[number]
            metric, loss = NodeTask(tree, split, reference).measure(network, part)
            assert metrics[number] == metric
            torch.testing.assert_close(losses[number], loss.to(dtype))
        chosen = torch.tensor([2, 1])
        torch.testing.assert_close(many.losses(outputs[chosen], part, chosen), losses[chosen])
    assert many.has_test
    assert not ManyNodeTask(tree, [split.without_test() for split in splits], reference).has_test


def test_cells_trained_together_have_the_results_of_single_ones(tree):
    cells = [Cell("gcn", split, seed) for split in (0, 1) for seed in (0, 4)]
    base = make_recipe(models=("gcn",), epochs=8, hidden_dim=4, dropout=0.0)
    recipes = [base.replace(lr=lr) for lr in (0.01, 0.02, 0.003, 0.05)]
    together = train_cells(cells, recipes, tree, CPU)
    for cell, recipe, found in zip(cells, recipes, together):
        alone = train_cell(cell, recipe, tree, CPU).result
        assert (found.cell, found.parameters, found.epochs) == (cell, alone.parameters, alone.epochs)
        assert abs(found.val_loss - alone.val_loss) < 1e-4 and abs(found.test_loss - alone.test_loss) < 1e-4


def test_noise_of_dropout_repeats(tree):
    cells = [Cell("gcn", 0, seed) for seed in range(2)]
    recipes = [make_recipe(models=("gcn",), epochs=4, hidden_dim=4, dropout=rate) for rate in (0.5, 0.2)]
    first, second = (train_cells(cells, recipes, tree, CPU) for _ in range(2))
    assert [found.val_loss for found in first] == [found.val_loss for found in second]
