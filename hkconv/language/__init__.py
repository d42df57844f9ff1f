"""Translation and what its encoders know of syntax: batches of text, beam search, scores, structural probes."""
