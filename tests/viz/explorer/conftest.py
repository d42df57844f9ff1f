"""Pages opened in a real browser that notice every error and every request."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from hkconv.geometry.lorentz import exp0
from hkconv.viz.explorer.page import write_page
from hkconv.viz.explorer.scene import Scene


class OpenPage:
    """An explorer page in the browser."""

    def __init__(self, page, path: Path):
        self.page, self.mouse, self.keyboard = page, page.mouse, page.keyboard
        self.errors, self.requests = [], []
        page.on("console", lambda message: self.errors.append(message.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(path.as_uri())
        self.settle()

    def read(self, expression: str, *arguments):
        """What a name of ``window.hkconv`` says."""
        return self.page.evaluate(f"(given) => window.hkconv.{expression}(...given)", list(arguments))

    def state(self, name: str):
        return self.read("state")[name]

    def lorentz(self) -> torch.Tensor:
        """All nodes as the view has them."""
        found = self.page.evaluate("Array.from({length: hkconv.size}, (_, node) => hkconv.lorentz(node))")
        return torch.tensor(found, dtype=torch.float64)

    def settle(self) -> None:
        """Wait until nothing moves and all is drawn."""
        self.page.wait_for_function("() => !window.hkconv.state().isMoving")

    def press(self, *keys: str) -> None:
        for key in keys:
            self.keyboard.press(key)
        self.settle()

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def middle(self) -> list[float]:
        box = self.page.locator("#overlay").bounding_box()
        return [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2]

    def drag(self, start, *places) -> None:
        self.mouse.move(*start)
        self.mouse.down()
        for place in places:
            self.mouse.move(*place)
        self.mouse.up()


@pytest.fixture
def open_page(browser, tmp_path) -> Iterator[Callable[..., OpenPage]]:
    """Opens the page of a scene; in the end no page may have met an error or asked for anything but itself."""
    opened = []

    def show(scene: Scene, **options) -> OpenPage:
        path = tmp_path / f"page{len(opened)}.html"
        write_page(scene, path)
        options = {"viewport": {"width": 1000, "height": 700}, "reduced_motion": "reduce", **options}
        opened.append(OpenPage(browser.new_page(**options), path))
        return opened[-1]

    yield show
    for page in opened:
        assert page.errors == []
        assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []
        assert sum(url.startswith("file:") for url in page.requests) == 1
        page.page.close()


@pytest.fixture
def cloud(generator) -> Callable[..., torch.Tensor]:
    """Random points up to a distance from the origin."""

    def make(size: int, dim: int, radius: float) -> torch.Tensor:
        direction = torch.randn(size, dim, generator=generator, dtype=torch.float64)
        length = radius * torch.rand(size, 1, generator=generator, dtype=torch.float64)
        direction = torch.nn.functional.normalize(direction, dim=1)
        return exp0(torch.nn.functional.pad(length * direction, (1, 0)))

    return make
