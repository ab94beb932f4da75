"""Runs the program, and reads what it prints."""
import json
import os
import subprocess


class Program:
    def __init__(self, path, folder):
        self.path, self.folder, self.calls = path, folder, 0

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)
        return name

    def run(self, arguments, timeout=600):
        self.calls += 1
        return subprocess.run([self.path] + [str(a) for a in arguments], capture_output=True, text=True,
                              cwd=self.folder, timeout=timeout)

    def json(self, arguments):
        done = self.run(list(arguments) + ["--json", "--quiet"])
        if done.returncode:
            return None, done.stderr.strip()
        return json.loads(done.stdout), ""
