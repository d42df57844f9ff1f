import json
from dataclasses import asdict

from fuzzing import changed, damaged, fuzzed, input_errors_alone
from hypothesis import strategies as st

from hkconv.language.log import LogEntry, append_entry, forget_after, read_log


def entry(step):
    return LogEntry(step, 1 / 3, 0.5, 1e-4, 0, 100, 2.5, 1e4, None if step % 2 else 0.1)


def test_lines_come_back_exactly(tmp_path):
    for step in (1, 2, 3):
        append_entry(tmp_path / "log", entry(step))
    assert read_log(tmp_path / "log") == [entry(1), entry(2), entry(3)]


def test_steps_that_will_be_taken_again_are_forgotten(tmp_path):
    path = tmp_path / "log"
    forget_after(path, 0)
    assert read_log(path) == []
    for step in (1, 2, 3, 4):
        append_entry(path, entry(step))
    with path.open("a") as file:
        file.write('{"step": 5, "los')
    assert len(read_log(path)) == 4
    forget_after(path, 2)
    append_entry(path, entry(3))
    assert [line.step for line in read_log(path)] == [1, 2, 3]


@fuzzed(lines=st.lists(changed(asdict(entry(1))).map(json.dumps).map(str.encode) | damaged(b'{"step": 1}'), max_size=3))
def test_whatever_a_log_holds_it_is_read_and_cut_back(tmp_path, lines):
    path = tmp_path / "log"
    path.write_bytes(b"\n".join(lines))
    with input_errors_alone():
        forget_after(path, 2)
        assert all(found.step <= 2 for found in read_log(path))
