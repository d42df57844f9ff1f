"""The runtime table of the paper, to stand beside our own: seconds for one training epoch on an RTX 3090.

The figures are the paper's (appendix, "Runtime of different hyperbolic GCNs in graph-related tasks"); nothing here was
measured by us. Airports and diseases are not in that table.
"""

from dataclasses import dataclass

PAPER_GPU = "RTX 3090"


@dataclass(frozen=True)
class PaperRow:
    """Seconds an epoch of one dataset; ``dataset`` is its name in our catalog."""

    dataset: str
    hknet: float
    hybonet: float
    h2h_gcn: float
    hgcn: float


PAPER_ROWS = (
    PaperRow("ptc", 1.04, 0.55, 0.63, 0.97),
    PaperRow("enzymes", 2.48, 1.66, 1.43, 2.27),
    PaperRow("proteins", 3.05, 2.26, 2.17, 2.94),
    PaperRow("imdb-binary", 2.82, 1.83, 1.64, 2.62),
    PaperRow("imdb-multi", 5.63, 2.92, 2.58, 4.21),
    PaperRow("cornell", 0.029, 0.0066, 0.0089, 0.027),
    PaperRow("texas", 0.021, 0.0076, 0.0084, 0.025),
    PaperRow("wisconsin", 0.020, 0.0076, 0.0091, 0.031),
    PaperRow("chameleon", 0.035, 0.016, 0.013, 0.031),
    PaperRow("squirrel", 0.15, 0.016, 0.014, 0.043),
    PaperRow("actor", 0.051, 0.012, 0.014, 0.042),
    PaperRow("cora", 0.024, 0.0084, 0.011, 0.035),
    PaperRow("pubmed", 0.022, 0.0082, 0.0076, 0.027),
)
PAPER_DATASETS = tuple(row.dataset for row in PAPER_ROWS)
