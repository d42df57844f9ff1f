import csv
import gzip
import sys
from types import ModuleType

import numpy as np
import pytest

from hkconv.data import smiles
from hkconv.data.smiles import atom_categories, chemistry_versions, read_smiles
from hkconv.errors import InputError

pytest.importorskip("rdkit")

# Codes of element, chirality, degree, charge, hydrogens, radical electrons, hybridisation, aromatic, in a ring. An
# element's code is its number less one, that of a charge is the charge plus five; SP, SP2 and SP3 are 0, 1 and 2.
ETHANOL = [[5, 0, 4, 5, 3, 0, 2, 0, 0], [5, 0, 4, 5, 2, 0, 2, 0, 0], [7, 0, 2, 5, 1, 0, 2, 0, 0]]
AROMATIC_CH = [5, 0, 3, 5, 1, 0, 1, 1, 1]
SIX_RING = {(atom, (atom + step) % 6) for atom in range(6) for step in (1, -1)}


def edge_set(molecule):
    return set(map(tuple, molecule.edges.T.tolist()))


@pytest.fixture(scope="module")
def published_smiles(real_data):
    """About a hundred strings of each file."""
    found = []
    for file, step in (("hiv", 400), ("tox21", 80), ("muv", 1000)):
        with gzip.open(real_data / "molecules" / f"{file}.csv.gz", "rt") as lines:
            found += [record["smiles"] for record in csv.DictReader(lines)][::step]
    return found


def test_ethanol_has_three_heavy_atoms_and_two_bonds():
    molecule = read_smiles("CCO")
    assert molecule.is_sane
    assert molecule.atoms.tolist() == ETHANOL
    assert molecule.edges.T.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]


@pytest.mark.parametrize("written", ["c1ccccc1", "C1=CC=CC=C1"])
def test_benzene_is_an_aromatic_ring_however_it_is_written(written):
    molecule = read_smiles(written)
    assert molecule.atoms.tolist() == [AROMATIC_CH] * 6
    assert edge_set(molecule) == SIX_RING and molecule.edges.shape == (2, 12)


def test_charges_and_molecules_of_several_parts():
    acetate = read_smiles("CC(=O)[O-].[NH4+]")
    assert [atom[3] - 5 for atom in acetate.atoms.tolist()] == [0, 0, 0, -1, 1]
    assert edge_set(acetate) == {(0, 1), (1, 0), (1, 2), (2, 1), (1, 3), (3, 1)}


def test_a_single_atom_has_no_edges_and_hydrogens_are_none():
    water = read_smiles("[H]O[H]")
    assert water.atoms.tolist() == [[7, 0, 2, 5, 2, 0, 2, 0, 0]] and water.edges.shape == (2, 0)


def test_what_rdkit_refuses_is_read_without_its_valence_check():
    molecule = read_smiles("[H]O[AlH3](c1ccccc1)O")
    assert not molecule.is_sane
    hydroxyl, aluminium, *ring, last = molecule.atoms.tolist()
    assert hydroxyl == last == [7, 0, 2, 5, 1, 0, 2, 0, 0]
    assert aluminium[:5] == [12, 0, 6, 5, 3]
    assert ring == [[5, 0, 3, 5, 0, 0, 1, 1, 1], *[AROMATIC_CH] * 5]
    assert molecule.edges.shape == (2, 18)


def test_an_impossible_aromatic_ring_is_still_a_ring():
    molecule = read_smiles("c1cccc1")
    assert not molecule.is_sane
    assert molecule.edges.shape == (2, 10) and molecule.atoms[:, 8].all()


@pytest.mark.parametrize("text", ["", "C(C", "not a molecule"])
def test_what_is_no_smiles_is_nothing(text):
    assert read_smiles(text) is None


def test_atoms_and_edges_are_those_of_ogb(published_smiles):
    chemistry_versions()  # imports OGB without its question to PyPI
    from ogb.utils.mol import smiles2graph

    for text in published_smiles:
        molecule = read_smiles(text)
        if molecule.is_sane:
            expected = smiles2graph(text)
            assert np.array_equal(molecule.atoms, expected["node_feat"]), text
            assert np.array_equal(molecule.edges, expected["edge_index"]), text


def test_without_the_valence_check_nothing_else_changes(published_smiles, monkeypatch):
    expected = {text: read_smiles(text) for text in [*published_smiles, "[H]C([H])=O", "C[C@H](F)Cl", "[2H]OC"]}
    chem, features, silence = smiles._chemistry()

    class Refusing:
        """RDKit's ``Chem`` that accepts no chemistry."""

        def __getattr__(self, name):
            return getattr(chem, name)

        def MolFromSmiles(self, text, sanitize=True):  # noqa: N802
            return None if sanitize else chem.MolFromSmiles(text, sanitize=False)

    monkeypatch.setattr(smiles, "_chemistry", lambda: (Refusing(), features, silence))
    for text, before in expected.items():
        after = read_smiles(text)
        assert not after.is_sane
        assert np.array_equal(after.atoms, before.atoms) and np.array_equal(after.edges, before.edges), text


def test_codes_stay_below_their_numbers_of_categories(published_smiles):
    assert sum(atom_categories()) == 174
    atoms = np.concatenate([read_smiles(text).atoms for text in published_smiles])
    assert (atoms.max(axis=0) < atom_categories()).all()


@pytest.mark.parametrize("asker", [None, ModuleType("outdated")])
def test_ogb_does_not_ask_the_network_whether_it_is_outdated(monkeypatch, asker):
    for name in [name for name in sys.modules if name.split(".")[0] in ("ogb", "outdated")]:
        monkeypatch.delitem(sys.modules, name)
    if asker is not None:
        monkeypatch.setitem(sys.modules, "outdated", asker)
    smiles._chemistry.__wrapped__()
    assert sys.modules["ogb.version"].check_outdated is None
    assert sys.modules.get("outdated") is asker


def test_missing_packages_are_named_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "rdkit", None)
    with pytest.raises(InputError, match=r"molecules need RDKit and OGB .*pip install 'hkconv\[molecules\]'"):
        smiles._chemistry.__wrapped__()


def test_bonds_have_kind_stereochemistry_and_conjugation_both_ways():
    """Single, double, triple and aromatic are 0 to 3; no stereochemistry is 0."""
    assert read_smiles("CC=O").bonds.tolist() == [[0, 0, 0], [0, 0, 0], [1, 0, 0], [1, 0, 0]]
    assert read_smiles("c1ccccc1").bonds.tolist() == [[3, 0, 1]] * 12
    assert read_smiles("O").bonds.shape == (0, 3)
    trans, cis = read_smiles("F/C=C/F").bonds, read_smiles("F/C=C\\F").bonds
    assert trans[2, 1] != cis[2, 1] and (trans[2] == trans[3]).all()
