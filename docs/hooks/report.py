"""The report's page and plots, which are not kept, made of the stored results before the site is built."""

import subprocess
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig


def on_pre_build(config: MkDocsConfig) -> None:
    """Write ``results/report.html`` where there is none that is as new as the results."""
    root = Path(config.docs_dir).parent
    page = root / "results" / "report.html"
    newest = max(path.stat().st_mtime for path in (root / "results" / "records").rglob("*.csv"))
    if not page.exists() or page.stat().st_mtime < newest:
        subprocess.run([sys.executable, "-m", "hkconv", "report"], cwd=root, check=True, stdout=subprocess.DEVNULL)
