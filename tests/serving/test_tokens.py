import re

import pytest

from hkconv.errors import InputError
from hkconv.serving.tokens import find_token, is_allowed


def test_a_token_is_read_from_the_environment_or_a_file(tmp_path, monkeypatch):
    monkeypatch.delenv("HKCONV_TOKEN", raising=False)
    assert find_token(None) is None
    monkeypatch.setenv("HKCONV_TOKEN", "from-the.environment==")
    assert find_token(None) == "from-the.environment=="
    (tmp_path / "token").write_text("from/a+file\n")
    assert find_token(tmp_path / "token") == "from/a+file"


@pytest.mark.parametrize("content", [b"", b" \n", b"two words", b"two\nlines", "t\u00f6ken".encode(), b"a=b", b"\xff"])
def test_what_no_client_can_send_is_refused_and_not_repeated(tmp_path, content):
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(InputError, match=re.escape(f"token file {tmp_path / 'token'}")) as caught:
        find_token(tmp_path / "token")
    assert "words" not in str(caught.value)


def test_an_empty_variable_is_no_reason_to_serve_without_a_token(monkeypatch):
    monkeypatch.setenv("HKCONV_TOKEN", "")
    with pytest.raises(InputError, match="HKCONV_TOKEN in the environment must hold one token"):
        find_token(None)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere cannot be read \(No such file"):
        find_token(tmp_path / "nowhere")


@pytest.mark.parametrize("header", [b"Bearer secret", b"bearer secret", b"BEARER  secret "])
def test_the_token_opens(header):
    assert is_allowed(header, "secret")


@pytest.mark.parametrize(
    "header",
    [None, b"", b"secret", b"Bearer", b"Bearer ", b"Bearer secre", b"Bearer secrets", b"Basic secret", b"\xff \xff"],
)
def test_anything_else_does_not(header):
    assert not is_allowed(header, "secret")
