"""Data that people bring: tables, archives, saved graphs and folders of graphs, read without trusting any of them."""
