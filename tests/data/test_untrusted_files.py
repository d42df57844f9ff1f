import io
import os
import pickle
import stat
import zipfile
from collections import OrderedDict

import numpy as np
import pytest

from hkconv.data.untrusted_files import check_pickle, read_arrays
from hkconv.errors import InputError


def array_bytes(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def test_arrays_by_name(tmp_path):
    np.savez(tmp_path / "a.npz", x=[1.5], y=["b"], z=[2])
    found = read_arrays(tmp_path / "a.npz", "mine")
    assert {name: array.tolist() for name, array in found.items()} == {"x": [1.5], "y": ["b"], "z": [2]}
    assert list(read_arrays(tmp_path / "a.npz", "mine", only=("z", "w"))) == ["z"]


def test_members_are_names_and_no_paths(tmp_path):
    """Upwards, from the root and by a link: nothing is written anywhere."""
    folder = tmp_path / "deep" / "down"
    folder.mkdir(parents=True)
    link = zipfile.ZipInfo("link.npy")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(folder / "a.npz", "w") as archive:
        for name in ("../up.npy", f"{tmp_path}/root.npy", link):
            archive.writestr(name, array_bytes([1]))
    assert set(read_arrays(folder / "a.npz", "mine")) == {"../up", f"{tmp_path}/root", "link"}
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == [folder / "a.npz"]


@pytest.mark.parametrize(
    "member, reason",
    [
        (b"no array at all", "'x.npy' is none|'x' is none"),
        (b"", "'x.npy' is none|'x' is none"),
        (array_bytes(np.arange(9))[:100], "it is damaged or something else"),
        (b"\x93NUMPY\x01\x00\x04\x00{}\n\n", "it is damaged or something else"),
    ],
)
def test_members_that_are_no_arrays(tmp_path, member, reason):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", member)
    with pytest.raises(InputError, match=f"^mine is not a valid .npz file of plain arrays: ({reason})$"):
        read_arrays(tmp_path / "a.npz", "mine")


def test_objects_and_pickles_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([{}], dtype=object))
    with pytest.raises(InputError, match="it holds Python objects"):
        read_arrays(tmp_path / "a.npz", "mine")
    (tmp_path / "a.npz").write_bytes(pickle.dumps({"x": 1}))
    with pytest.raises(InputError, match="it is damaged or something else"):
        read_arrays(tmp_path / "a.npz", "mine")


def test_other_files(tmp_path):
    with pytest.raises(InputError, match=r"mine cannot be read \(No such file or directory\)"):
        read_arrays(tmp_path / "a.npz", "mine")
    (tmp_path / "a.npz").write_bytes(array_bytes([1]))
    with pytest.raises(InputError, match=r"mine must be an \.npz file of named arrays, got a single array"):
        read_arrays(tmp_path / "a.npz", "mine")


class Calls:
    def __reduce__(self):
        return os.getcwd, ()


@pytest.mark.parametrize("protocol", range(4))
def test_names_are_read_off_and_compared(protocol):
    content = pickle.dumps(OrderedDict(a=[1, "b"]), protocol)
    check_pickle(content, {"collections OrderedDict"}, "file")
    with pytest.raises(InputError, match=r"^file is refused: it asks for collections\.OrderedDict"):
        check_pickle(content, (), "file")
    with pytest.raises(InputError, match=r"it asks for (posix|nt|os)\.getcwd"):
        check_pickle(pickle.dumps(Calls(), protocol), {"collections OrderedDict"}, "file")


@pytest.mark.parametrize(
    "content, step",
    [
        (pickle.dumps(Calls(), 4), "STACK_GLOBAL"),
        (b"(ios\ngetcwd\n.", "INST"),
        (b"\x82\x01.", "EXT1"),
        (b"Pid\n.", "PERSID"),
    ],
)
def test_names_that_cannot_be_read_off_are_refused(content, step):
    with pytest.raises(InputError, match=f"it asks for {step}"):
        check_pickle(content, {"os getcwd", "posix getcwd"}, "file")
