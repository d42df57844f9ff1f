"""Time and memory of layers and of training epochs, measured side by side; the programs in benchmarks/ call it."""
