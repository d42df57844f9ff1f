"""Own data as people bring them: small enough to train on in a test, and easy enough to learn."""

import csv
import random
from collections.abc import Callable
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


# Ids as people have them: with spaces, commas, quotes, leading zeros and letters of other alphabets.
ID_FORMS = ("{:05d}", "person {}", "Nº {}", "o'neil-{}", "李 {}", "x,{}", "🙂{}", "ID_{}", "#{}", '"{}"')


def write_people(folder: Path, count: int = 300, newcomers: int = 40) -> Path:
    """So many persons, the last of whom have no class yet, with the columns of a real table.

    The class follows from age and salary, a little more from whom a person knows. Values are missing in several
    spellings, every person has a name of its own, and the salary is a hundred thousand times what a network likes.

    Args:
        folder: made.
        count: persons.
        newcomers: those of them without a label.

    Returns:
        The folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(7)
    ids = [ID_FORMS[number % len(ID_FORMS)].format(number) for number in range(count)]
    rows, kinds = [], [draw.randrange(3) for _ in range(count)]
    for number, kind in enumerate(kinds):
        age = "" if draw.random() < 0.1 else round(draw.gauss(30 + 14 * kind, 6))
        salary = (
            draw.choice(["nan", "NA", ""]) if draw.random() < 0.15 else round(draw.gauss(40_000, 9_000) * 1.8**kind)
        )
        rows.append(
            {
                "id": ids[number],
                "name": f"Žofie Müller-{number} {draw.choice(['Ångström', 'Ōe', 'Наумов'])}",
                "age": age,
                "salary": salary,
                "city": draw.choice(["Köln", "São Paulo", "東京", "nan"]),
                "joined": f"20{draw.randrange(10, 24)}-{draw.randrange(1, 13):02d}-{draw.randrange(1, 28):02d}",
                "member": draw.choice(["yes", "no"]),
                "label": ("junior", "senior", "chef")[kind] if number < count - newcomers else "",
            }
        )
    alike = {kind: [number for number in range(count) if kinds[number] == kind] for kind in range(3)}
    edges = [
        (ids[number], ids[draw.choice(alike[kind]) if draw.random() < 0.7 else draw.randrange(count)])
        for number, kind in enumerate(kinds)
        for _ in range(3)
    ]
    with open(folder / "nodes.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    with open(folder / "edges.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("source", "target"), *edges])
    return folder


def check_screens(screen: Callable[..., str], advise: tuple[str, ...] = (), train: tuple[str, ...] = ()) -> None:
    """Walk a new user's path on the folder ``people``, and check what each command prints.

    Args:
        screen: runs ``hkconv`` with arguments in the folder that ``people`` is in, and returns standard output.
        advise, train: options that make these take less time.
    """
    advised = screen("advise", "people", *advise)
    trained = screen("train", "people", *train)
    run = trained.split("files: ")[1].splitlines()[0]
    first = {line.split()[0]: line.replace("majority class", "majority") for line in trained.splitlines()}
    learned, majority = (float(first[name].split()[1]) for name in ("hkn", "majority"))
    assert learned > majority + 30, trained
    predicted = screen("predict", run, "people")
    explored = screen("explore", run)
    assert predicted.startswith("hkn split ") and "300 nodes written to predictions.csv" in predicted
    assert explored.splitlines()[0] == predicted.splitlines()[0]
    for text in (advised, trained, predicted, explored):
        assert 0 < len(text.splitlines()) < 25, text


def write_houses(folder: Path, labels: str = "target") -> Path:
    """Ninety houses in a street of neighbors, whose price follows from their size; nine have no label.

    Args:
        folder: made.
        labels: ``"target"``, prices of about two hundred thousand; or ``"questions"``, ``label:is big`` and
            ``label:has garden``, of which more are unknown.

    Returns:
        The folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(1)
    asked = "target" if labels == "target" else "label:is big,label:has garden"
    rows, edges = [f"id,size,kind,{asked}"], ["source,target"]
    for number in range(90):
        size, garden = draw.gauss(0, 1), draw.random() < 0.5
        price = f"{200_000 + 50_000 * size + draw.gauss(0, 2_000):.2f}"
        answers = ["yes" if size > 0 else "no", str(int(garden))]
        if number % 4 == 1:
            answers[number % 3 % 2] = ""
        known = number % 10 != 9
        cells = [price if known else ""] if labels == "target" else answers if known else ["", ""]
        rows.append(",".join([f"house {number}", f"{100 + 30 * size:.2f}", "detached" if garden else "flat", *cells]))
        edges.append(f"house {number},house {(number + 1) % 90}")
    (folder / "nodes.csv").write_text("\n".join(rows) + "\n")
    (folder / "edges.csv").write_text("\n".join(edges) + "\n")
    return folder


def write_friends(folder: Path) -> Path:
    """Eighty people with edges that have attributes: who is pointed to by friends is liked, by rivals disliked.

    Some years of the edges are missing; a node has no feature that its class follows from.
    """
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(3)
    edges = ["source,target,kind,years"]
    for number in range(80):
        for step in (1, 7, 11):
            years = "" if draw.random() < 0.1 else f"{draw.uniform(1, 30):.1f}"
            edges.append(f"{(number + step) % 80},{number},{('friend', 'rival')[number % 2]},{years}")
    rows = [f"{number},{draw.random():.3f},{('liked', 'disliked')[number % 2]}" for number in range(80)]
    (folder / "nodes.csv").write_text("\n".join(["id,age,label", *rows]) + "\n")
    (folder / "edges.csv").write_text("\n".join(edges) + "\n")
    return folder


def write_library(folder: Path) -> Path:
    """Sixty papers of two classes, thirty authors and ten journals in one table: each type has columns of its own.

    Pages of some papers are missing. Only papers have a class, that of their author's age.
    """
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(4)
    rows, edges = ["id,type,age,pages,country,label"], ["source,target"]
    for number in range(30):
        rows.append(f"author {number},author,{draw.gauss(30 + 40 * (number % 2), 4):.1f},,,")
    for number in range(10):
        rows.append(f"journal {number},journal,,,{draw.choice(['FR', 'JP'])},")
    for number in range(60):
        pages = "" if number % 10 == 3 else draw.randrange(4, 40)
        rows.append(f"paper {number},paper,,{pages},,{('early', 'late')[number % 2]}")
        edges += [f"author {number % 30},paper {number}", f"journal {draw.randrange(10)},paper {number}"]
    (folder / "nodes.csv").write_text("\n".join(rows) + "\n")
    (folder / "edges.csv").write_text("\n".join(edges) + "\n")
    return folder
