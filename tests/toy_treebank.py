"""A small treebank over the words of the small language pair, for tests that probe a translator."""

import numpy as np
from toy_translation import WORDS
from tree_cases import random_tree


def write_treebank(folder, counts, seed=0):
    """Write the parts of a treebank of random trees over random words as CoNLL-U files; returns the folder."""
    random = np.random.default_rng(seed)
    folder.mkdir(exist_ok=True)
    for part, count in counts.items():
        sentences = (_sentence(random, int(random.integers(2, 10))) for _ in range(count))
        (folder / f"toy-{part}.conllu").write_text("\n\n".join(sentences) + "\n\n", encoding="utf-8")
    return folder


def _sentence(random, size):
    tree = random_tree(random, size)
    words = [str(random.choice(list(WORDS))) for _ in range(size)]
    return "\n".join(
        f"{number}\t{'.' if mark else word}\t_\tX\t{'.' if mark else 'NN'}\t_\t{head + 1}\tdep\t_\t_"
        for number, (word, head, mark) in enumerate(zip(words, tree.heads, tree.is_punctuation), start=1)
    )
