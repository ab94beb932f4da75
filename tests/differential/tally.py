"""Counts what was compared, keeps the worst relative difference of each kind, and fails by the question's seed."""
import collections


class Tally:
    def __init__(self):
        self.count = collections.Counter()
        self.worst = collections.defaultdict(float)
        self.failures = []

    def same(self, kind, found, expected, what, tolerance=1e-9, absolute=1e-18):
        """Checks that found and expected agree."""
        self.count[kind] += 1
        difference = abs(found - expected)
        relative = difference / max(abs(expected), abs(found)) if difference > absolute else 0.0
        if relative <= tolerance:
            self.worst[kind] = max(self.worst[kind], relative)
        else:
            self.failures.append(f"{kind}: {what}: found {found!r}, expected {expected!r}")
        return relative <= tolerance

    def at_most(self, kind, less, more, what, tolerance=1e-9):
        """Checks a property: less <= more."""
        self.count[kind] += 1
        if less > more * (1 + tolerance) + 1e-15:
            self.failures.append(f"{kind}: {what}: {less!r} is not at most {more!r}")

    def equal(self, kind, found, expected, what):
        self.count[kind] += 1
        if found != expected:
            self.failures.append(f"{kind}: {what}: found {found!r}, expected {expected!r}")

    def report(self):
        for kind in sorted(self.count):
            print(f"{kind:34} {self.count[kind]:8} compared, worst relative difference {self.worst[kind]:.1e}")
        for failure in self.failures[:20]:
            print("FAILED " + failure)
        if len(self.failures) > 20:
            print(f"and {len(self.failures) - 20} more failures")
        print(f"{sum(self.count.values())} comparisons, {len(self.failures)} failed")
        return not self.failures
