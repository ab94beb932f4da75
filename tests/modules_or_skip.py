"""Modules that a test needs, from Debian's Python where the one that runs it has none; else the test is skipped."""
import importlib
import os
import sys

SKIPPED = 77  # as CTest is told
DEBIAN = "/usr/bin/python3"


def need(package, *modules):
    """Imports the modules, or starts this script anew under Debian's Python, or ends it as skipped."""
    try:
        for module in modules:
            importlib.import_module(module)
    except ImportError as error:
        if os.path.exists(DEBIAN) and os.path.realpath(sys.executable) != os.path.realpath(DEBIAN):
            sys.stdout.flush()
            os.execv(DEBIAN, [DEBIAN, "-B"] + sys.argv)
        print(f"skipped: {error} (apt-get install {package})")
        sys.exit(SKIPPED)
