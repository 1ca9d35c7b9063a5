"""`python -m tests.counts [--note]`: count fixed work, beside the counts that are kept."""

import argparse
import json
import sys

from tests.counts.counting import MEASURED, NOTED, PYTHON, noted
from tests.simulation.run import quiet


def main() -> int:
    """Print each count with its share of the one that is kept; keep them with `--note`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--note", action="store_true", help="keep these counts")
    note = parser.parse_args().note
    if sys.version_info[:2] != PYTHON:
        sys.exit(f"The counts that are kept are of Python {PYTHON[0]}.{PYTHON[1]}.")
    quiet()
    found = {name: measure() for name, measure in MEASURED.items()}
    kept = noted() if NOTED.exists() else {}
    for name, counts in found.items():
        for what, count in counts.items():
            before = kept.get(name, {}).get(what)
            share = f"{count / before:8.3f} of {before:,}" if before else ""
            print(f"{name}: {what:24} {count:10,} {share}")
    if note:
        NOTED.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
