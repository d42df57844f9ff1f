"""Pictures: static figures, and the explorer page for hyperbolic embeddings."""
