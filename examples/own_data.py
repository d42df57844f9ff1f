# %% [markdown]
# # Your own data: advise, train, predict
#
# You have a table of nodes and a table of edges. This notebook writes a small pair, asks whether HKN suits it, trains
# three networks on the same splits, and predicts the class of people who joined later. It takes half a minute on a
# CPU. As a script: `python examples/own_data.py`.
#
# Each step is also one command, which is named with it.

# %%
import csv
import random
import tempfile
from pathlib import Path

from hkconv.tasks import make_recipe, train_run
from hkconv.tasks.advice import advise
from hkconv.tasks.predict import predict_run, write_predictions

folder = Path(tempfile.mkdtemp())  # or any folder of yours

# %% [markdown]
# ## Two tables
#
# The staff of a company: a head, 6 directors, 30 managers, 150 engineers, and an edge from everybody to their boss.
# Salary and years of service hint at the role. Neighbours in this graph are *not* alike: a boss and their people have
# different roles. For a fifth of the staff the role is unknown; these cells are empty.
#
# `nodes.csv` needs the column `id`. `label` is the class, any other column a feature: numbers are standardised, text
# becomes categories, missing cells are filled. `edges.csv` needs `source` and `target`.

# %%
ROLES = ("", "director", "manager", "engineer")  # the head is none of these
draw = random.Random(0)
staff, bosses = [("head", 0)], {}
for level, people in ((1, 6), (2, 5), (3, 5)):
    for boss, _ in [person for person in staff if person[1] == level - 1]:
        for number in range(people):
            staff.append((f"{boss}.{number}" if level > 1 else f"team {number}", level))
            bosses[staff[-1][0]] = boss


def row(name: str, level: int, knows_role: bool) -> dict:
    salary = "" if draw.random() < 0.1 else round(draw.gauss(90_000 - 8_000 * level, 12_000))
    years = round(draw.gauss(12 - 2 * level, 3), 1)
    city = draw.choice(("Lyon", "Porto", "Turin"))
    return {"id": name, "salary": salary, "years": years, "city": city, "label": ROLES[level] if knows_role else ""}


def write_tables(place: Path, nodes: list[dict], edges: dict[str, str]) -> None:
    place.mkdir()
    with open(place / "nodes.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, nodes[0])
        writer.writeheader()
        writer.writerows(nodes)
    with open(place / "edges.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("source", "target"), *edges.items()])


nodes = [row(name, level, level < 2 or draw.random() < 0.8) for name, level in staff]
write_tables(folder / "company", nodes, bosses)
print((folder / "company" / "nodes.csv").read_text()[:230])

# %% [markdown]
# ## Does it suit HKN?
#
# `advise` looks at the graph, then trains HKN, a GCN and an MLP for as many seconds as you give it and compares them
# on validation data. No test label is looked at. The command is `hkconv advise company`.

# %%
advice = advise(str(folder / "company"), seconds=8)
print(advice.sizes)
print(f"{advice.facts.homophily:.0%} of the links are within a class")
for trial in advice.trials:
    print(f"{trial.model:4} validation {advice.metric} {trial.score:.3f}")
print(advice.verdict)

# %% [markdown]
# ## Train
#
# `train_run` trains every model on the same splits, 60/20/20 per cent of the nodes that have a label, and keeps
# tables, checkpoints and metrics in a folder. The command is `hkconv train company --out run`; all its options are
# keys of `make_recipe`.

# %%
recipe = make_recipe(
    dataset=str(folder / "company"), models=("hkn", "gcn", "mlp"), num_splits=3, epochs=100, out=str(folder / "run")
)
summary = train_run(recipe)
for model in summary.models:
    print(f"{model.model:4} test accuracy {100 * model.test.mean:.1f} ± {100 * model.test.deviation:.1f} %")
print(f"{summary.chance_rule} {100 * summary.chance.mean:.1f} %")

# %% [markdown]
# ## Predict
#
# Three engineers and a manager join, and nobody has written their roles down. New tables with the same columns are
# enough; nothing is trained again. The command is `hkconv predict run company-later --out predictions.csv`.

# %%
joined = {"Ada": "team 0.1", "Ben": "team 3.2", "Cleo": "team 5", "Dan": "Cleo"}
newcomers = [row(name, 2 if name == "Cleo" else 3, knows_role=False) for name in joined]
write_tables(folder / "company-later", [*nodes, *newcomers], {**bosses, **joined})
predictions = predict_run(folder / "run", str(folder / "company-later"))
write_predictions(folder / "predictions.csv", predictions)
print(predictions.choice)
answers = list(zip(predictions.ids, predictions.predicted, predictions.probabilities.amax(dim=1).tolist()))
for name, role, probability in answers[-len(joined) :]:
    print(f"{name:5}{role} ({probability:.0%})")

# %% [markdown]
# The file `predictions.csv` has a row for every node: its class and the probability of each. `docs/howto/own-data.md`
# goes on from here: weights of edges, dates, links, molecules, and answers over HTTP.
