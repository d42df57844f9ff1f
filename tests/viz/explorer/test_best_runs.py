import pytest
from made_records import made_record

from hkconv.errors import InputError
from hkconv.viz.explorer.best_runs import best_record


def test_the_variant_with_the_highest_mean_is_shown_by_its_best_split():
    steady = [made_record(variant="HKN+", split=split, val=val) for split, val in enumerate((0.7, 0.8, 0.75))]
    lucky = [made_record(variant="HKN", split=split, val=val) for split, val in enumerate((0.2, 0.9, 0.3))]
    assert best_record([*lucky, *steady], "texas") is steady[1]
    # What can no longer be trained cannot be shown.
    gone = [made_record(variant="HKN++", split=split, val=0.95, recipe={"root": True}) for split in range(3)]
    assert best_record([*gone, *steady], "texas") is steady[1]


@pytest.mark.parametrize(
    "change", [{"protocol": "published"}, {"quick": True}, {"model": "gcn"}, {"table": "ablations"}, {"val": None}]
)
def test_what_is_no_result_of_hkn_is_never_shown(change):
    with pytest.raises(InputError, match="no training of HKN on dataset 'texas'"):
        best_record([made_record(**change)], "texas")
