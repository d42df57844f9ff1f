"""The one hot operation, from edges to aggregated points, and what it is made of."""
