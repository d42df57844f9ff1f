import gzip

import pytest
from fuzzing import damaged, fuzzed, input_errors_alone
from hypothesis import strategies as st

from hkconv.data.parallel_text import decode_lines, find_parallel_text, read_lines
from hkconv.errors import InputError


def write(folder, english, german, compress=False):
    for language, content in (("en", english), ("de", german)):
        path = folder / f"text.{language}"
        if compress:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(content))
        else:
            path.write_bytes(content)
    return find_parallel_text(folder / "text", "en", "de")


@pytest.mark.parametrize("compress", [False, True])
def test_pairs_in_order_from_plain_and_compressed_files(tmp_path, compress):
    text = write(tmp_path, "\ufeffa b\nc\u2028d\r\n".encode(), "ä\nö".encode(), compress)
    assert list(text) == [("a b", "ä"), ("c\u2028d", "ö")]
    assert list(text) == [("a b", "ä"), ("c\u2028d", "ö")]


def test_multi30k_has_the_pairs_its_readme_says(real_data):
    pairs = list(find_parallel_text(real_data / "mt" / "multi30k" / "valid", "en", "de"))
    assert len(pairs) == 1014
    assert sum(len(source.split()) for source, _ in pairs) == 12167
    assert sum(len(target.split()) for _, target in pairs) == 11568


def test_lines_are_read_as_they_are_asked_for(tmp_path):
    text = write(tmp_path, b"a\nb\n\xff\n", b"x\ny\nz\n")
    pairs = iter(text)
    assert [next(pairs), next(pairs)] == [("a", "x"), ("b", "y")]
    with pytest.raises(InputError, match="line 3"):
        next(pairs)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize(
    "english, german, message",
    [
        (b"a\nb\nc\n", b"x\n", r"text\.de\S* has 1 lines and \S*text\.en\S* has 3"),
        (b"a\n", b"x\ny\nz\n", r"text\.en\S* has 1 lines and \S*text\.de\S* has 3"),
        (b"a\n \nc\n", b"x\ny\nz\n", r"text\.en\S*, line 2 is empty"),
        (b"a\nb\n", b"x\n\n", r"text\.de\S*, line 2 is empty"),
        (b"a\nb\n", b"x\ny\xc3(\n", r"text\.de\S*, line 2 is not valid UTF-8: byte 2 is 0xc3"),
        (b"", b"x\n", r"text\.en\S* is empty"),
    ],
)
def test_what_is_wrong_is_named_with_its_file_and_line(tmp_path, english, german, message, compress):
    text = write(tmp_path, english, german, compress)
    with pytest.raises(InputError, match=message):
        list(text)


def test_a_compressed_file_that_breaks_off(tmp_path):
    content = gzip.compress("\n".join(str(number) for number in range(100_000)).encode())
    path = tmp_path / "text.en.gz"
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"text\.en\.gz is damaged after line \d+"):
        list(read_lines(path))
    path.write_bytes(b"plain\n")
    with pytest.raises(InputError, match="not a gzip file"):
        list(read_lines(path))


def test_missing_files_are_named(tmp_path):
    with pytest.raises(InputError, match=r"neither \S*text\.en nor text\.en\.gz"):
        find_parallel_text(tmp_path / "text", "en", "de")
    with pytest.raises(InputError, match="cannot be read"):
        list(read_lines(tmp_path))


def test_empty_lines_where_they_are_accepted():
    assert list(decode_lines([b"a\n", b"\n", b"b"], "input", empty=True)) == ["a", "", "b"]


@fuzzed(
    english=damaged("a b\nc\u2028d\n".encode(), gzip.compress(b"a\nb\n")),
    german=damaged("ä\nö\n".encode(), gzip.compress(b"x\ny\n")),
    compressed=st.booleans(),
)
def test_whatever_the_files_hold_only_input_errors_come_out(tmp_path, english, german, compressed):
    for language, content in (("en", english), ("de", german)):
        (tmp_path / f"{'zipped' if compressed else 'plain'}.{language}{'.gz' * compressed}").write_bytes(content)
    with input_errors_alone():
        pairs = list(find_parallel_text(tmp_path / ("zipped" if compressed else "plain"), "en", "de"))
        assert all(source.strip() and target.strip() for source, target in pairs)
