from contextlib import nullcontext

import torch

from hkconv.engine.finite import Watch, first_non_finite, largest_parameter


class Root(torch.nn.Module):
    """A network whose second module makes NaN of negative numbers."""

    def forward(self, x):
        return x.sqrt()


def make_model():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), Root(), torch.nn.Linear(2, 2))
    with torch.no_grad():
        model[0].weight.fill_(-1)
        model[0].bias.zero_()
    return model


def test_names_the_first_parameter():
    model = make_model()
    with torch.no_grad():
        model[2].bias[1] = float("inf")
    assert first_non_finite(model, lambda: None) == "parameter '2.bias'"


def test_names_the_first_module_and_leaves_no_hooks():
    model = make_model()
    assert first_non_finite(model, lambda: model(torch.ones(3, 2))) == "the output of module '1'"
    assert not any(module._forward_hooks for module in model.modules())


def test_blames_the_loss_if_the_network_is_fine():
    model = make_model()
    assert first_non_finite(model, lambda: model(-torch.ones(3, 2))) == "the loss"


def test_the_largest_parameter_is_found_and_shows_what_is_not_finite():
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(0, 2, bias=False), torch.nn.Linear(3, 1))
    with torch.no_grad():
        model[2].weight[0, 1] = -7.5
    assert largest_parameter(model).tolist() == [7.5]
    for bad in (float("inf"), float("nan")):
        with torch.no_grad():
            model[0].bias[1] = bad
        assert not largest_parameter(model).isfinite()


class Steep(torch.nn.Module):
    """The root, whose slope at 0 is infinite; from 0 it comes out finite."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.scale * x.sqrt()


class Branches(torch.nn.Module):
    """Several modules that read the same tensor."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(2, 2)
        self.left, self.steep, self.right = torch.nn.Linear(2, 2), Steep(), torch.nn.Linear(2, 2)
        with torch.no_grad():
            self.first.weight.zero_()
            self.first.bias.zero_()

    def forward(self, x):
        h = self.first(x)
        return self.left(h) + self.steep(h) + self.right(h)


def test_a_gradient_is_blamed_on_the_module_it_came_through():
    model = Branches()
    with Watch(model) as watch:
        loss = model(torch.ones(3, 2)).sum()
        assert loss.isfinite() and watch.gradient is None
        loss.backward()
    assert watch.gradient == "the gradient through module 'steep'"
    assert not model.first.weight.grad.isfinite().all()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert not any(parameter._backward_hooks for parameter in model.parameters())


def test_a_gradient_of_a_parameter_is_named():
    model = Branches()
    model.steep.scale.register_hook(lambda gradient: gradient * float("nan"))
    with torch.no_grad():
        model.first.bias.fill_(1.0)
    with Watch(model) as watch:
        model(torch.ones(3, 2)).sum().backward()
    assert watch.gradient == "the gradient of parameter 'steep.scale'"


def test_watching_changes_no_gradient():
    model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    gradients = []
    for watched in (False, True):
        model.zero_grad()
        with Watch(model) if watched else nullcontext() as watch:
            model(torch.arange(6.0).view(3, 2)).sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    assert watch.output is None and watch.gradient is None
    assert all(map(torch.equal, *gradients))
