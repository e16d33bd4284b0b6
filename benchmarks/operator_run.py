"""Prints the rows of one module of operator benchmarks, which check before they time, as JSON.

operator_run.py MODULE THREADS
"""

import importlib
import json
import sys

if __name__ == "__main__":
    print(json.dumps({"rows": importlib.import_module(sys.argv[1]).rows(int(sys.argv[2]))}))
