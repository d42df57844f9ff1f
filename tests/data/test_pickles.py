import os
import pickle
from collections import OrderedDict

import pytest

from hkconv.data.pickles import check_pickle
from hkconv.errors import InputError


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
