import asyncio
import threading

import pytest
from served import run_to_its_end

from hkconv.serving.refusals import RefusalError
from hkconv.serving.worker import Worker


@pytest.fixture
def worker():
    made = Worker(max_seconds=5)
    yield made
    made.close()


def test_no_two_questions_are_answered_at_a_time_and_none_is_mixed_up(worker):
    inside, most = 0, 0

    def question(number):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        threading.Event().wait(0.001)
        inside -= 1
        return number

    async def ask_all():
        return await asyncio.gather(*(worker.ask(lambda number=number: question(number)) for number in range(100)))

    assert run_to_its_end(ask_all()) == list(range(100))
    assert most == 1


def test_an_error_reaches_who_asked(worker):
    def question():
        raise KeyError("mine")

    async def ask():
        with pytest.raises(KeyError, match="mine"):
            await worker.ask(question)
        return await worker.ask(lambda: "the next one is answered")

    assert run_to_its_end(ask()) == "the next one is answered"


def test_what_takes_too_long_is_given_up_and_what_waited_behind_it_is_never_asked():
    worker = Worker(max_seconds=0.2)
    release, asked = threading.Event(), []

    async def ask():
        slow = asyncio.ensure_future(worker.ask(release.wait))
        waiting = asyncio.ensure_future(worker.ask(lambda: asked.append("waiting")))
        for one in (slow, waiting):
            with pytest.raises(RefusalError, match=r"no answer within 0\.2 seconds") as caught:
                await one
            assert caught.value.status == 504
        release.set()
        return await worker.ask(lambda: "again")

    assert run_to_its_end(ask()) == "again"
    assert asked == []
    worker.close()
