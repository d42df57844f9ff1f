import copy
import inspect
import pickle

import geoopt
import pytest
import torch
import torch_geometric
from nights import nightly

import hkconv
from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.geometry.curvature import curvature_value
from hkconv.models import HKN, create, hkn
from hkconv.models.options import OPTIONS_OF_PAPER, HKNOptions, ModelOptions
from hkconv.models.tasks import TASKS
from hkconv.nn import HKBlock, HNorm
from hkconv.testing import assert_on_manifold, assert_permutation_equivariant

# What HKN was in 0.1.0, by its defaults of then.
PAPER = {"form": "paper", "num_layers": 2, "dropout": 0.0}
VARIANTS_OF_PAPER = {
    "paper": {},
    "direct": {"relative": False},
    "random": {"points": "random"},
    "train": {"points": "trainable"},
    "mass": {"mass": True},
    "relu": {"act": "relu", "dropout": 0.2},
    "structure": {"structure": True, "num_nodes": 20, "dropout": 0.2},
    "layer norm": {"norm": "layer"},
    "batch norm": {"norm": "batch", "hidden_act": "relu"},
    "every layer": {"readout": "all", "mass": True},
    "curvatures": {"learn_curvature": True, "readout": "all", "curvature": -0.7},
    "everything": {
        "act": "relu",
        "mass": True,
        "norm": "batch",
        "hidden_act": "relu",
        "readout": "all",
        "learn_curvature": True,
        "reach": 3.0,
        "dropout": 0.2,
    },
}
VARIANTS_OF_VIEWS = {
    "views": {},
    "views with mass": {"mass": True},
    "views, layer norm": {"norm": "layer"},
    "views, structure": {"structure": True, "num_nodes": 20},
    "views, curvatures": {"learn_curvature": True, "curvature": -0.7},
    "views, trained points": {"points": "trainable", "norm": "none", "hidden_act": "none", "readout": "last"},
}
VARIANTS = {**{name: {**PAPER, **options} for name, options in VARIANTS_OF_PAPER.items()}, **VARIANTS_OF_VIEWS}
FORMS = ("views", "paper")
# Rows of the adjacency are for the node task, and belong to the numbers of the nodes.
OF_STRUCTURE = [name for name in VARIANTS if VARIANTS[name].get("structure")]
EQUIVARIANT = [name for name in VARIANTS if name not in OF_STRUCTURE]


def away_from_start(model, only=""):
    """The model with the parameters of that name, zeros too, moved a little."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if only in name and not isinstance(parameter, geoopt.ManifoldParameter):
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def graph(n=20, edges=60, features=5):
    return torch.randn(n, features), torch.randint(n, (2, edges))


@pytest.mark.parametrize("form", FORMS)
def test_node_logits_are_negated_distances_over_the_temperature(form, curvature):
    x, edge_index = graph()
    model = HKN(5, 4, 3, form=form, readout="last", curvature=curvature).eval()
    with torch.no_grad():
        model.log_temperature.fill_(0.5)
    points = model.encode(x, edge_index)
    assert_on_manifold(points, curvature)
    d = lorentz.dist(points.unsqueeze(1), model.distance.centers, curvature)
    torch.testing.assert_close(model(x, edge_index), -d / torch.tensor(0.5).exp())


@pytest.mark.parametrize("form", FORMS)
def test_graph_logits_do_not_depend_on_batch_mates(form):
    x, edge_index = graph()
    other, other_edges = graph(7, 12)
    model = HKN(5, 4, 3, task="graph", form=form, mass=True).eval()
    alone = model(x, edge_index)
    both = model(
        torch.cat([x, other]),
        torch.cat([edge_index, other_edges + 20], dim=1),
        batch=torch.tensor([0] * 20 + [1] * 7),
        batch_size=2,
    )
    torch.testing.assert_close(both[:1], alone)


@pytest.mark.parametrize("options", [{"readout": "last", "norm": "layer"}, {"form": "paper"}], ids=FORMS)
def test_link_logits_fall_with_distance(options):
    x, edge_index = graph()
    model = HKN(5, 4, task="link", **options).double().eval()
    x = x.double()
    pairs = torch.stack([torch.zeros(20, dtype=torch.long), torch.arange(20)])
    points = model.encode(x, edge_index)
    d = lorentz.dist(points[:1], points)
    assert torch.equal(
        model(x, edge_index, pairs=pairs).argsort(descending=True, stable=True)[:5], d.argsort(stable=True)[:5]
    )


CASES = [(task, name) for name in VARIANTS for task in (["node"] if name in OF_STRUCTURE else TASKS)]


@pytest.mark.parametrize("task, variant", CASES)
def test_every_variant_takes_a_finite_step_for_every_task(task, variant):
    x, edge_index = graph()
    model = HKN(5, 4, 3, task=task, kernel_size=3, **VARIANTS[variant])
    optimizer = hkconv.RiemannianAdam(model.parameters(), lr=0.01)
    extra = {
        "node": {},
        "graph": {"batch": torch.arange(20) // 5, "batch_size": 4},
        "link": {"pairs": torch.randint(20, (2, 9))},
    }[task]
    first = model(x, edge_index, **extra)
    first.square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
    before = copy.deepcopy(model.state_dict())
    optimizer.step()
    assert any(not torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.isfinite(model(x, edge_index, **extra)).all()


@pytest.mark.parametrize("form", FORMS)
def test_learns_what_only_the_neighbourhood_knows(form):
    """A node's class is whether its neighbours' features differ from its own: relative positions alone."""
    torch.manual_seed(0)
    x = torch.randn(200, 4)
    edge_index = torch.stack([torch.randint(200, (800,)), torch.arange(200).repeat(4)])
    spread = torch.zeros(200).index_add(0, edge_index[1], (x[edge_index[0]] - x[edge_index[1]]).norm(dim=1))
    y = (spread > spread.median()).long()
    model = HKN(4, 8, 2, num_layers=1, kernel_size=4, form=form, dropout=0.0)
    optimizer = hkconv.RiemannianAdam(model.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x, edge_index), y).backward()
        optimizer.step()
    assert (model(x, edge_index).argmax(1) == y).float().mean() > 0.85


@pytest.mark.parametrize("form", FORMS)
def test_copies_pickles_and_repeats_from_a_seed(form):
    x, edge_index = graph()
    torch.manual_seed(1)
    model = HKN(5, 4, 3, form=form, points="random").eval()
    torch.manual_seed(1)
    again = HKN(5, 4, 3, form=form, points="random").eval()
    expected = model(x, edge_index)
    for other in (again, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(x, edge_index), expected)
    model.reset_parameters()
    assert not torch.equal(model(x, edge_index), expected)


@pytest.mark.parametrize("variant", [*nightly("structure", "views, curvatures"), "everything", "views"])
def test_compiles_without_a_graph_break(variant):
    x, edge_index = graph()
    model = HKN(5, 4, 3, **{**VARIANTS[variant], "num_layers": 1}).eval()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, edge_index), model(x, edge_index))


@pytest.mark.parametrize("variant", EQUIVARIANT)
def test_renumbering_the_nodes_renumbers_the_answers(variant, dtype):
    x, edge_index = graph()
    model = away_from_start(HKN(5, 4, 3, **VARIANTS[variant]).to(dtype)).eval()
    assert_permutation_equivariant(model, x.to(dtype), edge_index, tolerance=1e-4 if dtype == torch.float32 else 1e-9)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_node_without_neighbours_gets_finite_logits_and_gradients(variant):
    x, edge_index = torch.randn(20, 5), torch.randint(5, (2, 30))
    model = away_from_start(HKN(5, 4, 3, **VARIANTS[variant]))
    logits = model(x, edge_index)
    logits.square().sum().backward()
    assert torch.isfinite(logits).all()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("variant", VARIANTS)
def test_float32_agrees_with_float64(variant):
    x, edge_index = graph()
    model = away_from_start(HKN(5, 4, 3, **VARIANTS[variant])).eval()
    exact = copy.deepcopy(model).double()(x.double(), edge_index)
    torch.testing.assert_close(model(x, edge_index).double(), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("variant", ["structure", "every layer", "curvatures", "everything", *VARIANTS_OF_VIEWS])
def test_backends_agree_on_the_levers(variant):
    x, edge_index = graph()
    model = away_from_start(HKN(5, 4, 3, **VARIANTS[variant]).double()).eval()
    plain = HKN(5, 4, 3, backend="reference", **VARIANTS[variant]).double().eval()
    plain.load_state_dict(model.state_dict())
    outputs = [m(x.double(), edge_index) for m in (model, plain)]
    torch.testing.assert_close(*outputs)
    gradients = [
        torch.autograd.grad(out.square().sum(), list(m.parameters())) for out, m in zip(outputs, (model, plain))
    ]
    for fused, reference in zip(*gradients):
        torch.testing.assert_close(fused, reference)


@pytest.mark.parametrize("form", FORMS)
def test_structure_reaches_the_embedding(form):
    x, edge_index = graph()
    model = HKN(5, 4, 3, form=form, structure=True, num_nodes=20, num_layers=1).eval()
    expected = model.convs[0](model.embedding(x, edge_index), edge_index)
    torch.testing.assert_close(model.encode(x, edge_index), expected)
    with torch.no_grad():
        model.embedding.node_weight.zero_()
    assert not torch.allclose(model.encode(x, edge_index), expected)


def test_norm_and_activation_act_after_every_layer():
    x, edge_index = graph()
    model = HKN(5, 4, 3, **PAPER, norm="layer", hidden_act="relu")
    expected = [model.embedding(x)]
    for conv in model.convs:
        space = conv(expected[-1], edge_index)[:, 1:]
        expected.append(lorentz.lift(torch.nn.functional.layer_norm(space, (4,)).clamp(min=0) / 4**0.5))
    for found, wanted in zip(model.layer_points(x, edge_index), expected, strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("task", ["node", "graph"])
@pytest.mark.parametrize("form", FORMS)
def test_readout_of_all_layers_sums_their_logits(form, task):
    x, edge_index = graph()
    model = HKN(5, 4, 3, task=task, form=form, readout="all", num_layers=2).eval()
    assert model.log_temperature.exp().item() == pytest.approx(0.3)  # so that the sum of three starts as a mean
    with torch.no_grad():
        for readout in (*model.early_readouts, model):
            readout.log_temperature.add_(torch.randn(()))
    embedded = model.embedding(x)
    first = model.convs[0](embedded, edge_index)
    total = 0
    for readout, points in zip(
        (*model.early_readouts, model), (embedded, first, model.convs[1](first, edge_index)), strict=True
    ):
        points = points if task == "node" else lorentz.centroid(points).unsqueeze(0)
        d = lorentz.dist(points.unsqueeze(1), readout.distance.centers)
        total = total - d / readout.log_temperature.exp()
    torch.testing.assert_close(model(x, edge_index), total)


@pytest.mark.parametrize("form", FORMS)
def test_readout_of_all_layers_sums_the_logits_of_links(form):
    x, edge_index = graph()
    model = HKN(5, 4, task="link", form=form, readout="all", num_layers=1).eval()
    pairs = torch.randint(20, (2, 9))
    embedded, last = model.layer_points(x, edge_index)
    t = hkn.LINK_TEMPERATURE if form == "views" else 1.0
    expected = sum(2 - lorentz.dist(points[pairs[0]], points[pairs[1]]).square() for points in (embedded, last)) / t
    torch.testing.assert_close(model(x, edge_index, pairs=pairs), expected)


@pytest.mark.parametrize("options", [{"num_layers": 2}, {**PAPER, "readout": "all"}], ids=FORMS)
def test_learned_curvatures_are_one_a_layer_and_points_are_rescaled_between(options):
    x, edge_index = graph()
    model = HKN(5, 4, 3, learn_curvature=True, **options).eval()
    learned = [name for name, _ in model.named_parameters() if "curvature" in name]
    assert len(learned) == 5  # two layers, the first of them with the embedding, and three readouts
    away_from_start(model, only="curvature")
    embedded, first, last = model.layer_points(x, edge_index)
    k = [curvature_value(conv.curvature) for conv in model.convs]
    assert k[0] != k[1]
    assert_on_manifold(embedded, k[0])
    fixed = HKN(5, 4, 3, **options)
    fixed.load_state_dict(model.state_dict(), strict=False)
    for number, (before, after) in enumerate(((embedded, first), (first * (k[0] / k[1]) ** 0.5, last))):
        fixed_conv = HKN(5, 4, 3, curvature=k[number], **options).convs[number].eval()
        fixed_conv.load_state_dict(fixed.convs[number].state_dict())
        torch.testing.assert_close(after, fixed_conv(before, edge_index), rtol=1e-4, atol=1e-4)
    total = 0
    for readout, points, own in zip((*model.early_readouts, model), (embedded, first, last), (k[0], *k)):
        other = curvature_value(readout.read_curvature)
        assert other != own
        centers = lorentz.lift(readout.distance.centers[:, 1:], other)
        d = lorentz.dist((points * (own / other) ** 0.5).unsqueeze(1), centers, other)
        total = total - d / readout.log_temperature.exp()
    torch.testing.assert_close(model(x, edge_index), total, rtol=1e-4, atol=1e-4)


def test_learned_curvatures_are_found_again():
    """Of a network that is known but for its curvatures, each layer finds its own."""
    torch.manual_seed(0)
    x, edge_index = graph(60, 240)
    teacher = HKN(5, 6, 3, **PAPER, learn_curvature=True).double()
    with torch.no_grad():
        for conv, value in zip(teacher.convs, (-0.4, -2.5)):
            conv.curvature.log_curvature.fill_(torch.tensor(-value).log())
    student = copy.deepcopy(teacher)
    learned = [conv.curvature for conv in student.convs]
    for curvature in learned:
        curvature.reset_parameters()
    wanted = teacher(x.double(), edge_index).detach()
    optimizer = torch.optim.Adam([curvature.log_curvature for curvature in learned], lr=0.05)
    for _ in range(120):
        optimizer.zero_grad()
        loss = (student(x.double(), edge_index) - wanted).square().mean()
        loss.backward()
        optimizer.step()
    assert [curvature_value(k) for k in learned] == pytest.approx([-0.4, -2.5], rel=0.05)


def held_out_accuracies(problem, *options, steps=80):
    """The accuracy on held-out nodes of one model for each of the options, and its last training loss."""
    x, edge_index, y = problem
    found = []
    for chosen in options:
        torch.manual_seed(0)
        train = torch.rand(len(y)) < 0.6
        model = HKN(x.size(1), 8, int(y.max()) + 1, **chosen)
        optimizer = hkconv.RiemannianAdam(model.parameters(), lr=0.02)
        for _ in range(steps):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model.train()(x, edge_index)[train], y[train])
            loss.backward()
            optimizer.step()
        right = model.eval()(x, edge_index).argmax(1) == y
        found.append((right[~train].float().mean().item(), loss.item()))
    return found


@pytest.mark.parametrize("options", [{"dropout": 0.0}, PAPER], ids=FORMS)
def test_structure_knows_who_the_neighbours_are(options):
    """All features are alike, and a node's class is that of the hubs it hears from."""
    hubs, n = 10, 200
    kind = torch.arange(hubs) % 3
    y = torch.cat([kind, torch.randint(3, (n,))])
    source = y[hubs:].repeat_interleave(2) + 3 * torch.randint(3, (2 * n,))
    edge_index = torch.stack([source, hubs + torch.arange(n).repeat_interleave(2)])
    options = {**options, "num_layers": 1}
    lever = {**options, "structure": True, "num_nodes": hubs + n}
    without, with_lever = held_out_accuracies((torch.ones(hubs + n, 2), edge_index, y), options, lever)
    assert without[0] < 0.5 < 0.9 < with_lever[0]


@pytest.mark.parametrize("form", FORMS)
def test_mass_counts_neighbours(form):
    degree = torch.randint(1, 7, (200,))
    target = torch.arange(200).repeat_interleave(degree)
    problem = (torch.ones(200, 2), torch.stack([torch.randint(200, target.shape), target]), (degree > 3).long())
    options = {"form": form, "num_layers": 1, "dropout": 0.0}
    # By then the running statistics of the normalization have caught up with the weights.
    without, with_lever = held_out_accuracies(problem, options, {**options, "mass": True}, steps=120)
    assert without[0] < 0.7 < 0.95 < with_lever[0]


def test_readout_of_all_layers_sees_nodes_without_neighbours():
    """They are at the origin after the first layer; half of the nodes have no edge."""
    x = torch.randn(200, 2)
    problem = (x, torch.randint(100, (2, 400)), (x[:, 0] > 0).long())
    without, with_lever = held_out_accuracies(problem, PAPER, {**PAPER, "readout": "all"}, steps=60)
    assert without[0] < 0.85 < 0.93 < with_lever[0]


def test_normalised_layers_learn_faster_when_there_are_many():
    x = torch.randn(200, 4)
    edge_index = torch.stack([torch.randint(200, (800,)), torch.arange(200).repeat(4)])
    spread = torch.zeros(200).index_add(0, edge_index[1], (x[edge_index[0]] - x[edge_index[1]]).norm(dim=1))
    problem = (x, edge_index, (spread > spread.median()).long())
    options = {**PAPER, "num_layers": 5}
    without, with_lever = held_out_accuracies(problem, options, {**options, "norm": "batch"}, steps=40)
    assert with_lever[1] < 0.3 * without[1]


def test_views_see_the_node_itself_and_what_is_alike_among_neighbours():
    """Half of the nodes have no edge, and of the others the class is that of the mean of their neighbours."""
    x, edge_index = torch.randn(300, 2), torch.randint(150, (2, 600))
    count = torch.bincount(edge_index[1], minlength=300).clamp(min=1)
    mean = torch.zeros(300).index_add(0, edge_index[1], x[edge_index[0], 0]) / count
    problem = (x, edge_index, (torch.where(torch.arange(300) < 150, mean, x[:, 0]) > 0).long())
    options = {"num_layers": 1, "dropout": 0.0, "readout": "last"}
    paper, views = held_out_accuracies(problem, {**options, "form": "paper"}, options)
    assert paper[0] < 0.75 < 0.85 < views[0]


def test_the_defaults_are_those_of_the_recipe():
    ours = {entry.name: entry.default for entry in inspect.signature(HKN).parameters.values()}
    of_recipe = {name: entry.default for name, entry in ModelOptions.options().items()}
    # The model has to be told what its recipe has a default for.
    shared = ours.keys() & of_recipe.keys() - {"hidden_dim"}
    assert shared == {*HKNOptions.options(), "num_layers", "dropout"}
    assert {name: ours[name] for name in shared} == {name: of_recipe[name] for name in shared}
    assert ours["hidden_dim"] is inspect.Parameter.empty


def test_what_a_form_decides_has_no_other_default():
    assert dict.fromkeys(name for form in hkn.FORMS.values() for name in form) == dict.fromkeys(
        ("norm", "hidden_act", "readout", "reach")
    )


OF_PAPER = {"act": "relu", "relative": False}


@pytest.mark.parametrize("name", OPTIONS_OF_PAPER)
def test_an_option_of_the_paper_has_no_place_in_views(name):
    HKN(5, 4, 3, form="paper", **{name: OF_PAPER[name]})
    HKN(5, 4, 3, **{name: getattr(HKNOptions, name)})
    message = f"{name} is an option of form 'paper' and has no place in form 'views', got {OF_PAPER[name]!r}"
    with pytest.raises(InputError, match=f"^{message}$"):
        HKN(5, 4, 3, **{name: OF_PAPER[name]})


def test_what_a_form_has_can_be_said():
    """By words that mean the same, the same model; None is what the form has."""
    x, edge_index = graph()
    said = {
        "views": {"norm": "batch", "hidden_act": "relu", "readout": "all", "reach": 5.0},
        "paper": {"norm": "none", "hidden_act": "none", "readout": "last"},
    }
    for form, options in said.items():
        silent, told = HKN(5, 4, 3, form=form), HKN(5, 4, 3, form=form, **options)
        told.load_state_dict(silent.state_dict())
        assert torch.equal(told.eval()(x, edge_index), silent.eval()(x, edge_index))


def test_views_have_batch_norm_relu_a_reach_and_every_layer_read():
    x, edge_index = 100 * torch.randn(20, 5), torch.randint(20, (2, 60))
    model = HKN(5, 4, 3)
    assert len(model.convs) == len(model.early_readouts) == ModelOptions.num_layers
    for block in model.convs:
        assert isinstance(block, HKBlock) and block.dropout == model.dropout == ModelOptions.dropout
        assert isinstance(block.norm.norm, torch_geometric.nn.BatchNorm)
        assert isinstance(block.norm.act, torch.nn.ReLU)
    embedded, *layers = model.eval().layer_points(x, edge_index)
    assert lorentz.dist(embedded, lorentz.origin(4)).max() <= 5 + 1e-4
    assert all((points[:, 1:] >= 0).all() for points in layers)


def test_norm_activation_and_readout_can_be_left_out_of_views():
    x, edge_index = graph()
    bare = HKN(5, 4, 3, norm="none", hidden_act="none", readout="last").eval()
    assert all(block.norm.norm is None and block.norm.act is None for block in bare.convs)
    assert not [name for name, _ in bare.named_buffers() if "running" in name]
    points = bare.layer_points(x, edge_index)
    assert any((found[:, 1:] < 0).any() for found in points[1:])
    d = lorentz.dist(points[-1].unsqueeze(1), bare.distance.centers)
    torch.testing.assert_close(bare(x, edge_index), -d / bare.log_temperature.exp())
    block = bare.convs[0]
    views = block.views(points[0], points[0], edge_index)
    gates = torch.full((20, 3), 1 / 3)  # all alike at the start
    torch.testing.assert_close(points[1], lorentz.centroid(views, gates), rtol=1e-4, atol=1e-5)
    # Each by itself, and the others stay.
    assert HKN(5, 4, 3, norm="none").convs[0].norm.norm is None
    assert isinstance(HKN(5, 4, 3, norm="none").convs[0].norm.act, torch.nn.ReLU)
    assert HKN(5, 4, 3, hidden_act="none").convs[0].norm.act is None
    assert isinstance(HKN(5, 4, 3, hidden_act="none").convs[0].norm.norm, torch_geometric.nn.BatchNorm)
    assert len(HKN(5, 4, 3, readout="last").early_readouts) == 0


@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("form", FORMS)
def test_a_reset_leaves_the_scale_of_every_norm_where_it_starts(form, norm):
    model = HKN(5, 4, 3, num_layers=3, form=form, norm=norm)

    def scales():
        norms = [module for module in model.modules() if isinstance(module, HNorm)]
        return [dict(module.named_parameters())[f"norm.{'module.' * (norm == 'batch')}weight"] for module in norms]

    wanted = torch.full((4,), 0.5)
    assert [scale.tolist() for scale in scales()] == [wanted.tolist()] * 3
    away_from_start(model)
    model(*graph())
    model.reset_parameters()
    assert [scale.tolist() for scale in scales()] == [wanted.tolist()] * 3
    for name, buffer in model.named_buffers():
        assert "running_mean" not in name or not buffer.any()
    for name, parameter in model.named_parameters():
        assert "gate_mix" not in name or not parameter.any()


@pytest.mark.parametrize("task", TASKS)
def test_a_reset_is_a_new_start(task):
    """As from the constructor: every parameter that starts at one value is there again."""
    x, edge_index = graph()
    model, fresh = HKN(5, 4, 3, task=task), HKN(5, 4, 3, task=task)
    away_from_start(model)
    model.encode(x, edge_index)
    model.reset_parameters()
    for (name, found), wanted in zip(model.state_dict().items(), fresh.state_dict().values(), strict=True):
        if wanted.is_floating_point() and wanted.std(correction=0) < 1e-6:
            torch.testing.assert_close(found, wanted, msg=name)


def test_repr_and_bad_options():
    paper = HKN(5, 4, 3, form="paper", num_layers=1)
    assert str(paper) == "HKN(node, HEmbedding(5, 4), HKConv(4, 4, kernel_size=4, dropout=0.5))"
    assert str(HKN(5, 4, 3, num_layers=1)) == "HKN(node, HEmbedding(5, 4), HKBlock(4, 4, kernel_size=4, dropout=0.5))"
    with pytest.raises(InputError, match="form must be 'views' or 'paper', got 'papers'"):
        HKN(5, 4, 3, form="papers")
    with pytest.raises(InputError, match="task must be one of node, graph, link, got 'edge'"):
        HKN(5, 4, 3, task="edge")
    with pytest.raises(InputError, match="num_classes must be at least 2 for the node task, got 1"):
        HKN(5, 4, 1)
    with pytest.raises(InputError, match="num_layers must be at least 1, got 0"):
        HKN(5, 4, 3, num_layers=0)
    with pytest.raises(InputError, match=r"pairs of shape \(2, P\) are needed"):
        HKN(5, 4, task="link")(*graph())
    with pytest.raises(InputError, match="readout must be 'last' or 'all', got 'first'"):
        HKN(5, 4, 3, readout="first")
    with pytest.raises(InputError, match="norm must be None, 'layer' or 'batch', got 'group'"):
        HKN(5, 4, 3, norm="group")
    with pytest.raises(InputError, match=r"structure is for the node task.* not for the graph task"):
        HKN(5, 4, 3, task="graph", structure=True, num_nodes=20)
    with pytest.raises(InputError, match="structure needs num_nodes"):
        HKN(5, 4, 3, structure=True)
    with pytest.raises(InputError, match="curvature must be a float for learn_curvature"):
        HKN(5, 4, 3, learn_curvature=True, curvature=torch.tensor(-1.0))
    with pytest.raises(InputError, match="unknown model 'hgn'; did you mean 'hgcn'"):
        create("hgn")


@pytest.mark.parametrize("form", ["views", "paper"])
@pytest.mark.parametrize("task", ["node", "graph"])
def test_attributes_of_edges_reach_every_layer(form, task, dtype):
    model = HKN(3, 4, 2, form=form, task=task, edge_dim=2, norm="none").to(dtype).eval()
    x, edges = torch.randn(5, 3, dtype=dtype), torch.tensor([[0, 1, 2, 3, 4, 2], [1, 2, 0, 4, 3, 2]])
    attr, graphs = torch.randn(6, 2, dtype=dtype), {}
    if task == "graph":
        graphs = {"batch": torch.tensor([0, 0, 0, 1, 1]), "batch_size": 2}
    plain = HKN(3, 4, 2, form=form, task=task, norm="none").to(dtype).eval()
    plain.load_state_dict({name: value for name, value in model.state_dict().items() if "edge_map" not in name})
    out = model(x, edges, edge_attr=attr, **graphs)
    torch.testing.assert_close(out, plain(x, edges, **graphs), rtol=1e-4, atol=1e-4)
    assert torch.equal(model.encode(x, edges, edge_attr=attr), model.layer_points(x, edges, None, attr)[-1])
    out.logsumexp(-1).sum().backward()
    maps = [parameter for name, parameter in model.named_parameters() if name.endswith("edge_map")]
    assert len(maps) == (4 if form == "views" else 2) and all(gradient.grad.abs().max() > 0 for gradient in maps)
    with pytest.raises(InputError, match=r"edge_attr must have shape .* \(6, 2\), got none"):
        model(x, edges, **graphs)
    with pytest.raises(InputError, match="edge_attr must be left out where edge_dim is None"):
        plain(x, edges, edge_attr=attr, **graphs)


def test_attributes_of_links_are_refused():
    with pytest.raises(InputError, match="edge_dim is for node and graph tasks"):
        HKN(3, 4, task="link", edge_dim=2)
