from made_records import made_failure, made_record

from hkconv.experiments.pages import Table
from hkconv.experiments.tuning_report import tuning_section


def trial(number, split=0, **changes):
    record = made_record(table="tuning-node", split=split, test=None, **changes)
    return {**record, "recipe": {**record["recipe"], "lr": 0.01 * (number + 1)}}


def table_of(records):
    return next(block for block in tuning_section("node", records) if isinstance(block, Table))


def test_counts_trials_splits_and_failures_of_each_system():
    records = [trial(number, split) for number in range(3) for split in (0, 1)]
    records += [trial(0, variant="GCN", model="gcn"), trial(0, dataset="cornell")]
    failure = made_failure(table="tuning-node", variant="GCN", model="gcn")
    records.append({**failure, "recipe": {**failure["recipe"], "lr": 0.5}})
    found = table_of(records)
    # In the order of the catalog; HKN last.
    assert found.head == ("system", "cornell", "texas")
    assert found.rows == (("GCN", "–", "2 x 1, 1 failed"), ("HKN", "1 x 1", "3 x 2"))


def test_a_failure_that_was_mended_is_none():
    failure = made_failure(table="tuning-node")
    assert table_of([failure, made_record(table="tuning-node", test=None)]).rows == (("HKN", "1 x 1"),)


def test_protocols_have_columns_of_their_own_and_other_tables_none():
    records = [trial(0), trial(0, protocol="published"), {**trial(0), "table": "tuning-graph"}]
    assert table_of(records).head == ("system", "texas", "texas, published")
    assert tuning_section("molecules", records) == []
