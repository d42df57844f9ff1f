from dataclasses import replace

import pytest
import torch
import translation_diagnosis
from toy_translation import SMALL, write_toy
from translation_cases import SIZES, sentences, shifted
from translation_diagnosis import COLUMNS, DEFAULT, Job, prepare, read, read_variant, run, show, stretched

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.models.translation import create_translator
from hkconv.testing import assert_on_manifold

CHANGES = (
    "free-targets",
    "geodesic",
    "squared-geodesic",
    "sums",
    "norms-first",
    "temperature=3",
    "radius=2",
    "share=0.5",
)


@pytest.fixture
def jobs(tmp_path):
    """``jobs(variants, **changes)``: jobs of small trainings in one folder, which is prepared."""

    def make(variants, until=float("inf"), **changes):
        common = {**SMALL, "capture": False, **write_toy(tmp_path), "validate_every": 2, "steps": 4, **changes}
        prepare(tmp_path / "runs", common)
        return [Job(name, 0, common, tmp_path / "runs", tmp_path / "table.csv", until) for name in variants]

    return make


def losses(job):
    return {(row["variant"], row["step"]): row["validation_loss"] for row in read(job.table)}


def test_rows_come_with_every_validation_and_what_has_ended_is_not_trained_again(jobs):
    told = []
    plan = jobs(("hybonet", "hkn+form=views+output=planes+scalars=4"))
    run(plan, 1, told.append)
    rows = read(plan[0].table)
    assert [(row["variant"], row["step"]) for row in rows] == [(job.variant, step) for job in plan for step in "24"]
    assert all(set(row) == set(COLUMNS) and float(row["tokens_per_second"]) > 0 for row in rows)
    assert told == [f"{job.variant}, seed 0: step 4 of 4" for job in plan]
    run(plan, 1, told.append)
    assert len(told) == 2 and read(plan[0].table) == rows


def test_going_on_gives_the_rows_of_one_call(jobs, tmp_path):
    (whole,) = jobs(("hkn",), steps=6)
    run([whole], 1)
    found = losses(whole)
    (part,) = jobs(("hkn",), steps=4)
    part = replace(part, table=tmp_path / "other.csv")
    (tmp_path / "runs" / "runs" / "hkn-0").rename(tmp_path / "kept")
    run([part], 1)
    run([replace(part, common=whole.common)], 1)
    assert losses(part) == found and len(found) == 3


def test_nothing_begins_when_the_time_is_up(jobs):
    told = []
    run(jobs(("hybonet",), until=0.0), 1, told.append)
    assert told == []


def test_one_that_diverges_does_not_stop_the_others(jobs):
    told = []
    run(jobs(("hkn+lr=1e20", "transformer")), 1, told.append)
    assert "not finite" in told[0]
    assert told[1] == "transformer, seed 0: step 4 of 4"


def test_workers_train_the_same_side_by_side(jobs, tmp_path):
    plan = jobs(("hybonet", "transformer"))
    run(plan, 2)
    assert set(losses(plan[0])) == {(name, step) for name in ("hybonet", "transformer") for step in "24"}


def test_folders_of_other_settings_are_refused(jobs):
    jobs(("hkn",))
    jobs(("hkn",), steps=100)
    with pytest.raises(InputError, match="name another folder"):
        jobs(("hkn",), dim=4)


def test_a_folder_whose_making_was_killed_is_gone_on_with_or_refused(jobs, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(translation_diagnosis, "encode_corpus", killed)
        jobs(("hkn",))
    with pytest.raises(InputError, match="name another folder"):
        jobs(("hkn",), merges=5)
    (job,) = jobs(("hkn",))
    run([job], 1)
    assert job.has_ended()


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_makes_another_model_that_learns(change, generator):
    torch.manual_seed(0)
    model = create_translator("hybonet", **{**SIZES, "dropout": 0.0}).train()
    source, target = sentences(generator), shifted(sentences(generator))
    before = model(source, target)
    for apply in read_variant(f"hybonet+{change}").changes:
        apply(model)
    for states in model.encoder_layers(source):
        assert_on_manifold(states)
    after = model(source, target)
    assert not torch.allclose(before, after, atol=1e-3)
    (after * torch.randn_like(after)).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@torch.no_grad()
@pytest.mark.parametrize("name, power", [("geodesic", 1), ("squared-geodesic", 2)])
def test_geodesic_logits_are_distances(name, power, generator):
    model = create_translator("hybonet", **SIZES).double()
    read_variant(f"hybonet+{name}").changes[0](model)
    embedding = model.double().embedding
    states = lorentz.lift(torch.randn(2, SIZES["dim"], generator=generator).double())
    expected = -(lorentz.dist(states.unsqueeze(1), embedding.tokens) ** power) / embedding.log_temperature.exp()
    torch.testing.assert_close(embedding.logits(states), expected)


def test_stretches_multiply_the_rate_of_their_kind_alone():
    model = create_translator("hkn", **SIZES)
    rates = {}
    for stretch in ({}, {"points": 0.5, "scalars": 4.0, "norms": 3.0}):
        groups = stretched(model, stretch, capturable=False).param_groups
        found = {id(p): group["stretch"] for group in groups for p in group["params"]}
        rates[len(stretch)] = [found[id(p)] for p in model.parameters()]
    for (name, parameter), before, after in zip(model.named_parameters(), rates[0], rates[3]):
        by = (
            0.5 if hasattr(parameter, "manifold") else 3.0 if ".norm." in name else 4.0 if parameter.dim() == 0 else 1.0
        )
        assert after == by * before, name


def test_names_are_read():
    variant = read_variant("hkn+form=views+lr=2+clip=10.0+points=0.3+sums")
    assert variant.recipe == {"model": "hkn", "form": "views", "lr": 2, "clip": 10.0}
    assert variant.stretch == {"points": 0.3} and len(variant.changes) == 1
    for name in DEFAULT:
        read_variant(name)


@pytest.mark.parametrize(
    "name, message",
    [
        ("hkn+summs", "unknown change 'summs'; did you mean 'sums'"),
        ("hkn+sums=3", "unknown change 'sums=3'; did you mean 'sums'"),
        ("hkn+steps=3", "unknown change 'steps=3'"),
        ("hkn+radius=-1", "radius must be a number above 0"),
        ("hkn+share=1", "share must be a number above 0 and below 1"),
        ("hkn+lr=[", "lr must be a value, got '\\['"),
        ("transformer+sums", "changes of the model are for hkn and hybonet"),
    ],
)
def test_wrong_names_are_refused(name, message):
    with pytest.raises(InputError, match=message):
        read_variant(name)


def test_the_table_is_shown_lowest_loss_first(tmp_path):
    rows = [
        {"variant": name, "seed": "0", "step": step, "validation_loss": loss}
        for name, step, loss in (("a", "2", "5"), ("a", "4", "4.5"), ("b", "2", "6"), ("b", "4", "4"), ("c", "2", "1"))
    ]
    assert show(rows) == ["b 0: 2 6.000, 4 4.000", "a 0: 2 5.000, 4 4.500", "c 0: 2 1.000"]
