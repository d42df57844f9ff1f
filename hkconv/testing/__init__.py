"""Property assertions that hkconv is tested with, for testing your own hyperbolic layers."""

from hkconv.testing.properties import (
    assert_on_manifold,
    assert_permutation_equivariant,
    assert_translation_invariant,
)

__all__ = ["assert_on_manifold", "assert_permutation_equivariant", "assert_translation_invariant"]
