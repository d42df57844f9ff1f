"""The chosen training of a run once more, on all labels: what is to be used, after all has been measured."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch

from hkconv.data import GraphDataset, LinkDataset, NodeDataset, Split
from hkconv.data.checks import UNKNOWN
from hkconv.data.dataset import OverlappingSplit
from hkconv.engine.checkpoint import CheckpointInfo, save_checkpoint
from hkconv.engine.devices import describe_device, find_device
from hkconv.engine.files import locked
from hkconv.engine.loop import Epoch
from hkconv.engine.reproducibility import deterministic_algorithms, versions
from hkconv.errors import InputError
from hkconv.tasks.building import describe_dataset, load_dataset, model_config
from hkconv.tasks.fitting import fit
from hkconv.tasks.predict import REFIT, REFIT_OF, choose_training
from hkconv.tasks.recipe import NO_REFIT
from hkconv.tasks.run import build_cell, read_recipe


@dataclass(frozen=True)
class Refit:
    """A model that was trained on all labels.

    Args:
        model: its name.
        labels: how many there were.
        epochs: that it was trained for: as many as the best of the chosen training had.
        folder: of its checkpoint.
    """

    model: str
    labels: int
    epochs: int
    folder: Path


def refit_run(folder: Path | str) -> Refit | None:
    """Train the chosen settings of a run on all labels, those to choose with and to test on too.

    The number of epochs and the scale of features are those of the training that :func:`choose_training` names. No
    score of this model means anything, and none is kept: the run's own say how well such a training does.

    Args:
        folder: a folder that :func:`~hkconv.tasks.run.train_run` made.

    Returns:
        The model, which ``hkconv predict``, ``export`` and ``explore`` take from now on; None after Ctrl-C, which
        leaves the run as it was.
    """
    folder = Path(folder)
    recipe = read_recipe(folder)
    dataset = load_dataset(recipe)
    if isinstance(dataset, LinkDataset):
        raise InputError(NO_REFIT)
    chosen = choose_training(folder).result
    split = cast(Split, dataset.splits[chosen.split])
    known = _labeled(dataset)
    # The epochs are counted, not chosen: what validates is among what is trained on, so the last weights are kept.
    whole = OverlappingSplit(known, split.val, None, scaling=split.scaling, target=split.target)
    device, config = find_device(recipe.runtime.device), model_config(recipe, chosen.model, dataset)
    recipe = recipe.replace(epochs=chosen.best_epoch, patience=chosen.best_epoch)
    network, settings = build_cell(chosen.cell, recipe, config, device)
    last: dict[str, torch.Tensor] = {}

    def keep(epoch: Epoch) -> None:
        if epoch.number == settings.epochs:
            last.update({name: tensor.clone() for name, tensor in network.state_dict().items()})

    with locked(folder, "run"), deterministic_algorithms(recipe.optim.deterministic):
        found = fit(network, dataset, whole, settings, keep)
        if found.interrupted:
            return None
        network.load_state_dict(last)
        place = {"device": describe_device(device), "versions": versions(), REFIT_OF: str(chosen.cell)}
        training = {"split": chosen.split, **recipe.optim.flat(), "seed": settings.seed, **place}
        info = CheckpointInfo(chosen.model, config, describe_dataset(dataset), training)
        save_checkpoint(folder / REFIT, network, info)
    return Refit(chosen.model, len(known), chosen.best_epoch, folder / REFIT)


def _labeled(dataset: NodeDataset | GraphDataset) -> torch.Tensor:
    """The members with a label, or with an answer."""
    labels = dataset.labels
    known = labels != UNKNOWN if labels.dim() == 1 else ~labels.isnan().all(1)
    return known.nonzero().flatten()
