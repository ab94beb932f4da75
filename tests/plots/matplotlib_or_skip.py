"""matplotlib, from Debian's Python where the one that runs this has none; without it the test is skipped."""
import os
import sys

SKIPPED = 77  # as CTest is told
DEBIAN = "/usr/bin/python3"

try:
    import matplotlib  # noqa: F401
except ImportError as error:
    if os.path.exists(DEBIAN) and os.path.realpath(sys.executable) != os.path.realpath(DEBIAN):
        sys.stdout.flush()
        os.execv(DEBIAN, [DEBIAN, "-B"] + sys.argv)
    print(f"skipped: {error} (apt-get install python3-matplotlib)")
    sys.exit(SKIPPED)
