import signal
import socket

import httpx
import pytest
from served import ask_from_many_clients, run_to_its_end, serving_process

from hkconv.errors import InputError
from hkconv.serving.server import address_of, bind, is_loopback
from hkconv.tasks.predict import predict_run

COLOURS = ("red", "green", "blue")


def test_a_free_port_is_found_and_listened_on_at_once():
    with bind("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        assert address_of(listening) == f"http://127.0.0.1:{port}" and is_loopback(listening)
        socket.create_connection(("127.0.0.1", port)).close()


def test_a_port_in_use_and_an_unknown_host_are_named():
    with bind("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(
            InputError, match=f"host 127.0.0.1 and port {port} cannot be listened on \\(Address already"
        ):
            bind("127.0.0.1", port)
    for host in ("no.such.host.invalid", "x" * 300, "192.0.2.1"):
        with pytest.raises(InputError, match="cannot be listened on"):
            bind(host, 0)


def test_every_address_of_the_machine_is_not_loopback():
    with bind("0.0.0.0", 0) as listening:
        assert not is_loopback(listening)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_ipv6():
    try:
        listening = bind("::1", 0)
    except InputError:
        pytest.skip("no IPv6 here")
    with listening:
        assert address_of(listening) == f"http://[::1]:{listening.getsockname()[1]}" and is_loopback(listening)


@pytest.fixture(scope="module")
def questions(papers, tmp_path_factory):
    """About known and about new nodes, with what ``hkconv predict`` says of each."""

    def entry(predictions, row):
        return predictions.ids[row], dict(zip(predictions.classes, predictions.probabilities[row].tolist()))

    folder = papers.parent / "papers"
    known = predict_run(papers, str(folder), device="cpu")
    asked = []
    for number in range(20):
        rows = [number, (7 * number + 1) % 60, (11 * number + 5) % 60]
        body = {"ids": [known.ids[row] for row in rows]}
        asked.append(("/predict/nodes", body, [entry(known, row) for row in rows]))
    nodes, edges = ((folder / f"{name}.csv").read_text() for name in ("nodes", "edges"))
    for number in range(20):
        age, colour, other = number / 2 - 4, COLOURS[number % 3], f"paper {3 * number}"
        grown = tmp_path_factory.mktemp("grown")
        (grown / "nodes.csv").write_text(f"{nodes}new,{age},{colour},\n")
        (grown / "edges.csv").write_text(f"{edges}new,{other},0.5\n")
        body = {
            "nodes": [{"id": "new", "features": {"age": age, "colour": colour}}],
            "edges": [{"source": "new", "target": other, "weight": 0.5}],
        }
        asked.append(("/predict/new-nodes", body, [entry(predict_run(papers, str(grown), device="cpu"), 60)]))
    return asked


def assert_many_clients_are_answered(run, questions, clients, seconds):
    answers = [str(expected) for _, _, expected in questions]
    assert len(set(answers)) == len(answers), "an answer to another question would not be noticed"
    with serving_process(run) as (address, process):
        tally = run_to_its_end(ask_from_many_clients(address, questions, clients, seconds))
        print(
            f"{clients} clients for {seconds} s: {tally.right} right, {len(tally.wrong)} wrong, {len(tally.lost)} lost"
        )
        print({share: round(tally.percentile(share), 3) for share in (0.5, 0.9, 0.99, 1)}, "seconds to an answer")
        assert (tally.wrong[:3], tally.refused[:3], tally.lost[:3]) == ([], [], [])
        assert tally.right >= clients
        counted = httpx.get(f"{address}/metrics").text.splitlines()
        answered = [line for line in counted if 'path="/predict/' in line and 'status="200"' in line]
        assert sum(int(line.rsplit(" ", 1)[1]) for line in answered) == tally.right
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
        assert process.stderr.read() == ""


def test_two_hundred_clients_get_their_own_answers(papers, questions):
    assert_many_clients_are_answered(papers, questions, clients=200, seconds=3)


@pytest.mark.nightly
def test_two_hundred_clients_for_half_a_minute(papers, questions):
    assert_many_clients_are_answered(papers, questions, clients=200, seconds=30)
