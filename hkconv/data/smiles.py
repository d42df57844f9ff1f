"""From a SMILES string to a graph with the features of the Open Graph Benchmark (Hu et al. 2020).

RDKit reads the string, OGB's own functions make the features. Both are optional and imported when first used.
"""

import functools
import sys
from dataclasses import dataclass
from importlib import metadata
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from hkconv.errors import InputError

if TYPE_CHECKING:
    from rdkit.Chem import Mol


@dataclass(frozen=True, eq=False)
class Molecule:
    """A molecule without its hydrogens.

    Args:
        atoms: (N, 9) uint8 codes of OGB's features: element, chirality, degree, charge, hydrogens, radical
            electrons, hybridisation, aromatic or not, in a ring or not.
        edges: (2, 2 B) int32, every bond in both directions.
        bonds: (2 B, 3) uint8 codes of OGB's features of these: kind, stereochemistry, conjugated or not.
        is_sane: whether RDKit accepts its chemistry.
    """

    atoms: np.ndarray
    edges: np.ndarray
    bonds: np.ndarray
    is_sane: bool


def read_smiles(smiles: str) -> Molecule | None:
    """The molecule that a SMILES string describes.

    What RDKit refuses, mostly for a valence that it does not know, is read without that check: newer versions
    refuse molecules that older ones, and so the published datasets, accepted.

    Args:
        smiles: the string.

    Returns:
        The molecule, None where the string is no SMILES or has no atom.
    """
    chem, features, silence = _chemistry()
    with silence():
        molecule = chem.MolFromSmiles(smiles)
        is_sane = molecule is not None
        if not is_sane:
            molecule = _without_valence_check(chem, smiles)
    if molecule is None or molecule.GetNumAtoms() == 0:
        return None
    atoms = np.array([features.atom_to_feature_vector(atom) for atom in molecule.GetAtoms()], dtype=np.uint8)
    ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in molecule.GetBonds()]
    both_ways = [edge for start, end in ends for edge in ((start, end), (end, start))]
    bonds = [features.bond_to_feature_vector(bond) for bond in molecule.GetBonds()]
    return Molecule(
        atoms,
        np.array(both_ways, dtype=np.int32).reshape(-1, 2).T,
        np.array(bonds, dtype=np.uint8).reshape(-1, len(bond_categories())).repeat(2, axis=0),
        is_sane,
    )


def atom_categories() -> tuple[int, ...]:
    """Number of categories of each of the nine features of an atom."""
    return tuple(_chemistry()[1].get_atom_feature_dims())


def bond_categories() -> tuple[int, ...]:
    """Number of categories of each of the three features of a bond."""
    return tuple(_chemistry()[1].get_bond_feature_dims())


def one_hot_columns(codes: np.ndarray, categories: tuple[int, ...]) -> np.ndarray:
    """Columns of the ones in one-hot features, (N, C) uint8, from (N, C) codes, category after category."""
    return (codes + np.cumsum([0, *categories[:-1]])).astype(np.uint8)


def chemistry_versions() -> str:
    """The versions that decide what a SMILES string becomes."""
    _chemistry()
    return f"RDKit {metadata.version('rdkit')}, OGB {metadata.version('ogb')}"


def _without_valence_check(chem: ModuleType, smiles: str) -> "Mol | None":
    """Do the steps of ``MolFromSmiles``, going on where a step fails."""
    molecule = chem.MolFromSmiles(smiles, sanitize=False)
    if molecule is None:
        return None
    molecule.UpdatePropertyCache(strict=False)
    molecule = chem.RemoveHs(molecule, sanitize=False)
    molecule.UpdatePropertyCache(strict=False)
    chem.SanitizeMol(molecule, chem.SANITIZE_ALL ^ chem.SANITIZE_PROPERTIES, catchErrors=True)
    chem.AssignStereochemistry(molecule, cleanIt=True)
    return molecule


@functools.cache
def _chemistry() -> tuple[ModuleType, ModuleType, type]:
    """RDKit's ``Chem``, OGB's ``features``, and a context in which RDKit does not log what we report ourselves."""
    # OGB asks PyPI for its newest version in a thread that a program without a network waits for at its end.
    # It does not where this package is missing.
    asker = sys.modules.get("outdated")
    sys.modules["outdated"] = None  # type: ignore[assignment]  # so Python marks a missing one
    try:
        from ogb.utils import features
        from rdkit import Chem, rdBase
    except ImportError as error:
        raise InputError(
            f"molecules need RDKit and OGB ({error}): install them with pip install 'hkconv[molecules]'"
        ) from None
    finally:
        if asker is None:
            del sys.modules["outdated"]
        else:
            sys.modules["outdated"] = asker
    return Chem, features, rdBase.BlockLogs
