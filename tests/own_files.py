"""Own data as people bring them: small enough to train on in a test, and easy enough to learn."""

import random
from pathlib import Path


def write_papers(folder: Path, *, weighted: bool = True, more: int = 0) -> Path:
    """Sixty nodes of three classes, linked within their class; ten of them have no label.

    Args:
        folder: made.
        weighted: whether edges have weights.
        more: how many nodes follow that have no label and a link to a node of the first sixty.

    Returns:
        The folder. Its first sixty nodes and their links are the same for any ``more``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    nodes, edges = ["id,age,colour,label"], ["source,target,weight"]
    for number in range(60 + more):
        kind = number % 3
        label = ("low", "mid", "high")[kind] if number < 50 else ""
        colour = draw.choice(("red", "green", "blue"))
        nodes.append(f"paper {number},{draw.gauss(3 * kind, 1):.4f},{colour},{label}")
        others = [(number + 3 * draw.randrange(1, 20)) % 60 for _ in range(2 if number < 60 else 1)]
        edges += [f"paper {number},paper {other},{draw.uniform(0.1, 1):.4f}" for other in others]
    if not weighted:
        edges = [line.rsplit(",", 1)[0] for line in edges]
    (folder / "nodes.csv").write_text("\n".join(nodes) + "\n")
    (folder / "edges.csv").write_text("\n".join(edges) + "\n")
    return folder
