import platform

import torch

import hkconv
from hkconv.training.environment import versions


def test_versions_name_what_a_result_depends_on():
    found = versions()
    assert found["python"] == platform.python_version()
    assert found["hkconv"] == hkconv.__version__
    assert found["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert {"torch-geometric", "geoopt", "numpy"} < set(found)
