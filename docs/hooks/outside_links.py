"""Pages are read in the repository too, and link to files outside docs/: the site carries a copy of each such file.

A page of docs/ that links to ``../results/report.html`` finds it, in the site, at ``results/report.html``.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

_LINK = re.compile(r"(?<=\]\()[^)#\s:]+")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages, the files outside that they link to, and what those link to in turn."""
    root = Path(config.docs_dir).parent
    waiting = list(files.documentation_pages())
    while waiting:
        page = waiting.pop()
        for link in _LINK.findall(page.content_string):
            path = _in_repository(page, link, root)
            if _is_outside(path) and (root / path).is_file() and files.get_file_from_path(path) is None:
                copy = File.generated(config, path, abs_src_path=str(root / path), inclusion=InclusionLevel.NOT_IN_NAV)
                files.append(copy)
                waiting += [copy] if copy.is_documentation_page() else []
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with its links turned to the copies."""
    root = Path(config.docs_dir).parent
    return _LINK.sub(lambda found: _in_site(page.file, found[0], files, root), markdown)


def _in_repository(page: File, link: str, root: Path) -> str:
    """Where a link leads, from the root. Markdown with a page of HTML beside it is that page: both have one address."""
    folder = posixpath.dirname(page.src_uri if page.generated_by else f"docs/{page.src_uri}")
    path = posixpath.normpath(posixpath.join(folder, link))
    twin = path.removesuffix(".md") + ".html"
    return twin if path.endswith(".md") and (root / twin).is_file() else path


def _is_outside(path: str) -> bool:
    return not path.startswith(("docs/", "../", "/"))


def _in_site(page: File, link: str, files: Files, root: Path) -> str:
    path = _in_repository(page, link, root)
    place = path if _is_outside(path) else path.removeprefix("docs/")
    if files.get_file_from_path(place) is None:
        return link
    return posixpath.relpath(place, posixpath.dirname(page.src_uri) or ".")
