"""The ids that every vocabulary gives its special tokens, so that models, batches and beam search agree on them."""

PAD = 0
BEGIN = 1
END = 2
UNKNOWN = 3
