import torch

from hkconv.training.finite import first_non_finite


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
