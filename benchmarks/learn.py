"""All figures of learning: `python -m benchmarks.learn [--only accuracy,sgd,network,sage,schedule]`.

Each part is a command of its own, with its own settings; here they run one after the other.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

PARTS = {
    "accuracy": "learn_accuracy",
    "sgd": "learn_sgd",
    "network": "learn_network",
    "sage": "learn_sage",
    "schedule": "learn_schedule",
}


def main() -> None:
    """Run the parts; the exit code tells whether all of them ended well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between them")
    chosen = parser.parse_args().only.split(",")
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    failed = []
    for name in chosen:
        print(f"== {name}", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{PARTS[name]}"]
        if subprocess.run(command, cwd=Path(__file__).parents[1], check=False).returncode:
            failed.append(name)
    if failed:
        sys.exit(f"these did not end well: {', '.join(failed)}")


if __name__ == "__main__":
    main()
