import torch

from hkconv.points.orientation import canonical_pose


def test_keeps_lengths_and_angles_and_forgets_rotations():
    vectors = torch.randn(5, 3, dtype=torch.float64)
    posed = canonical_pose(vectors)
    torch.testing.assert_close(posed @ posed.T, vectors @ vectors.T)
    assert (posed.triu(1) == 0).all() and (posed.diagonal() >= 0).all()
    rotation = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64)).Q
    torch.testing.assert_close(canonical_pose(vectors @ rotation), posed)
