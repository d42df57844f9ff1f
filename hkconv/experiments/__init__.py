"""The experiments of the paper: what was run, what it came to, and how that is written down."""
