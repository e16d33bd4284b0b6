"""One JSON and one text report from what benchmarks/gpu_check.sh left in a folder.

gpu_report.py FOLDER COMMIT
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

CLEAN = re.compile(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard")


def tests(path: Path) -> dict:
    """Counts of a run of pytest, and the names of what failed."""
    suites = ElementTree.parse(path).getroot().iter("testsuite")
    row = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0, "seconds": 0.0, "failed": []}
    for suite in suites:
        for key in ("tests", "failures", "errors", "skipped"):
            row[key] += int(suite.get(key, 0))
        row["seconds"] += float(suite.get("time", 0))
        for case in suite.iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                row["failed"].append(f"{case.get('classname')}::{case.get('name')}")
    return row


def sanitizer(path: Path) -> dict:
    text = path.read_text(errors="replace")
    found = [int(a or b) for a, b in CLEAN.findall(text)]
    ran = re.search(r"(\d+) kernels ran", text)
    return {"errors": found[-1] if found else None, "kernels": int(ran[1]) if ran else None}


def machine() -> dict:
    query = "--query-gpu=name,driver_version,memory.total,compute_cap"
    try:
        out = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True
        ).stdout
    except OSError:
        return {}
    keys = ("card", "driver", "memory", "compute_capability")
    return dict(zip(keys, (part.strip() for part in out.splitlines()[0].split(",")), strict=False))


def lines(report: dict) -> list[str]:
    out = [f"commit {report['commit']}", *(f"{k}: {v}" for k, v in report["machine"].items()), ""]
    for name, row in report["tests"].items():
        bad = row["failures"] + row["errors"]
        out.append(
            f"{name}: {row['tests']} tests, {bad} failed, {row['skipped']} skipped, "
            f"{row['seconds']:.0f} s"
        )
        out += [f"  failed: {case}" for case in row["failed"]]
    for name, row in report["sanitizers"].items():
        out.append(f"{name}: {row['errors']} errors over {row['kernels']} kernels")
    out += [""] + [" ".join(f"{k}={v}" for k, v in row.items()) for row in report["rows"]]
    return out


def main() -> None:
    folder, commit = Path(sys.argv[1]), sys.argv[2]
    rows = []
    for path in sorted(folder.glob("rows*.jsonl")):
        for line in path.read_text().splitlines():
            if line.startswith("{"):
                rows.append({"from": path.stem, **json.loads(line)})
    report = {
        "commit": commit,
        "machine": machine(),
        "tests": {p.stem: tests(p) for p in sorted(folder.glob("*.xml"))},
        "sanitizers": {p.stem: sanitizer(p) for p in sorted(folder.glob("sanitize_*.log"))},
        "rows": rows,
    }
    (folder / "gpu.json").write_text(json.dumps(report, indent=1) + "\n")
    (folder / "gpu.txt").write_text("\n".join(lines(report)) + "\n")
    print("\n".join(lines(report)))


if __name__ == "__main__":
    main()
