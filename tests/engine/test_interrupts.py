import os
import signal
import threading

import pytest

from hkconv.engine.interrupts import held_back


@pytest.fixture(autouse=True)
def listening():
    """A shell starts background jobs deaf to Ctrl-C, and tests may be one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def send(number):
    os.kill(os.getpid(), number)


def test_an_interrupt_waits_for_the_end_of_the_block():
    done = []
    with pytest.raises(KeyboardInterrupt), held_back() as interrupt:
        assert not interrupt.is_waiting
        send(signal.SIGINT)
        assert interrupt.is_waiting
        done.append("all of it")
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_one_does_not_wait():
    done = []
    with pytest.raises(KeyboardInterrupt), held_back():
        send(signal.SIGINT)
        done.append("half of it")
        send(signal.SIGINT)
        done.append("all of it")
    assert done == ["half of it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_sigterm_is_asked_at_the_end_and_put_back():
    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    mine = signal.getsignal(signal.SIGTERM)
    try:
        with held_back() as interrupt:
            send(signal.SIGTERM)
            assert (interrupt.is_waiting, heard) == (True, [])
        assert heard == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


def test_what_is_ignored_stays_so():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with held_back() as interrupt:
            send(signal.SIGINT)
            assert not interrupt.is_waiting
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_error_in_the_block_comes_through_first():
    with pytest.raises(ValueError, match="mine"), held_back():
        send(signal.SIGINT)
        raise ValueError("mine")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_get_no_signals_and_leave_them_alone():
    found = []

    def work():
        with held_back():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


def test_within_the_block_a_part_can_be_interrupted():
    done = []
    with pytest.raises(KeyboardInterrupt), held_back() as interrupt:
        with pytest.raises(KeyboardInterrupt), interrupt.let_through():
            send(signal.SIGINT)
            done.append("not this")
        send(signal.SIGINT)
        done.append("but this")
    assert done == ["but this"]


def test_what_waits_comes_when_it_is_let_through():
    done = []
    with held_back() as interrupt:
        send(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), interrupt.let_through():
            done.append("not this")
        assert not interrupt.is_waiting
    assert done == []


def test_blocks_within_blocks():
    done = []
    with pytest.raises(KeyboardInterrupt), held_back() as outer:
        with pytest.raises(KeyboardInterrupt), outer.let_through(), held_back():
            send(signal.SIGINT)
            done.append("the inner one")
        send(signal.SIGINT)
        done.append("the outer one")
    assert done == ["the inner one", "the outer one"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
