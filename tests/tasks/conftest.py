"""Datasets small enough to train on in a test."""

from small_datasets import links, molecules, questions, tree, tree_for_every_name

__all__ = ["links", "molecules", "questions", "tree", "tree_for_every_name"]
