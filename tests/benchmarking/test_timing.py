import pytest
import torch

from hkconv.benchmarking.timing import LEAST_REPEATS, MOST_REPEATS_A_ROUND, ROUNDS, Timing, measure, timer_for


def test_median_quartiles_and_all_times():
    timing = Timing((5.0, 1.0, 2.0, 4.0, 3.0)).as_dict()
    assert (timing["median"], timing["min"], timing["quartiles"], timing["iqr"]) == (3.0, 1.0, [2.0, 4.0], 2.0)
    assert timing["seconds"] == [5.0, 1.0, 2.0, 4.0, 3.0]


def test_one_time_has_no_spread():
    assert Timing((2.0,)).as_dict()["iqr"] == 0


def take(seconds, budget):
    """Measure calls that take the given seconds each on a fake clock; returns the order and the samples."""
    order, samples = [], {}

    def timer(call):
        order.append(call())
        return seconds[order[-1]]

    measure({name: lambda name=name: name for name in seconds}, budget, timer, samples)
    return order, samples


def test_calls_take_turns_and_share_the_budget():
    order, samples = take({"slow": 1.0, "fast": 0.25}, budget=20)
    turns = [name for number, name in enumerate(order) if number == 0 or order[number - 1] != name]
    assert turns == ["slow", "fast"] * ROUNDS
    assert sum(samples["slow"]) == pytest.approx(10)
    assert sum(samples["fast"]) == pytest.approx(10)


def test_a_slow_call_is_repeated_as_often_as_it_must_be_and_no_more():
    _, samples = take({"slow": 100.0, "fast": 0.001}, budget=1)
    assert len(samples["slow"]) == LEAST_REPEATS
    assert LEAST_REPEATS < len(samples["fast"]) <= ROUNDS * MOST_REPEATS_A_ROUND


def test_an_interrupt_loses_no_time_taken():
    samples = {}

    def timer(call):
        return call()

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure({"first": lambda: 2.0, "second": interrupted}, 1, timer, samples)
    assert samples == {"first": [2.0], "second": []}


def test_the_wall_timer_runs_the_call():
    ran = []
    assert timer_for(torch.device("cpu"))(lambda: ran.append(1)) >= 0
    assert ran == [1]
