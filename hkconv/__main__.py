"""``python -m hkconv`` is the command ``hkconv``."""

from hkconv.cli.main import run

if __name__ == "__main__":
    run()
