import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.graphgym.config import cfg, set_cfg
from torch_geometric.graphgym.models.layer import GeneralLayer, LayerConfig
from torch_geometric.graphgym.register import layer_dict

from hkconv.geometry import lorentz
from hkconv.nn import HKBlock, HKConv, graphgym


@pytest.mark.parametrize(("name", "kind"), [("hkconv", HKConv), ("hkblock", HKBlock)])
def test_a_registered_layer_is_the_layer_between_tangent_vectors_at_the_origin(name, kind, dtype, curvature):
    config = LayerConfig(dim_in=3, dim_out=5, has_l2norm=False, has_act=False)
    layer = GeneralLayer(name, config, kernel_size=2, curvature=curvature).to(dtype)
    assert isinstance(layer.layer.model, kind) and "kernel_size=2" in str(layer.layer.model)
    x, edge_index = torch.randn(6, 3, dtype=dtype), torch.randint(6, (2, 15))
    out = layer(Data(x=x, edge_index=edge_index)).x
    points = layer.layer.model(lorentz.exp0(torch.nn.functional.pad(x, (1, 0)), curvature), edge_index)
    torch.testing.assert_close(out, lorentz.log0(points, curvature)[:, 1:])
    out.sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())


def test_layers_stack_behind_graphgyms_own_normalization_and_dropout():
    config = LayerConfig(dim_in=3, dim_out=3, has_batchnorm=True, dropout=0.5, has_act=False)
    batch = Data(x=torch.randn(6, 3), edge_index=torch.randint(6, (2, 15)))
    for _ in range(3):
        batch = GeneralLayer("hkblock", config)(batch)
    assert batch.x.isfinite().all() and batch.x.shape == (6, 3)


@pytest.mark.skipif(cfg is None, reason="GraphGym's configuration needs yacs")
def test_a_configuration_chooses_the_layer_and_its_settings():
    from torch_geometric.graphgym.models.gnn import GNNStackStage

    set_cfg(cfg)
    cfg.gnn.layer_type, cfg.hkconv.kernel_size, cfg.gnn.stage_type = "hkconv", 7, "skipsum"
    stage = GNNStackStage(4, 4, 2)
    assert [layer.layer.model.kernel_size for layer in stage.children()] == [7, 7]
    batch = Data(x=torch.randn(6, 4), edge_index=torch.randint(6, (2, 15)))
    assert stage(batch).x.isfinite().all()


def test_the_names_are_registered():
    assert layer_dict["hkconv"] is graphgym.HKConvLayer and layer_dict["hkblock"] is graphgym.HKBlockLayer
