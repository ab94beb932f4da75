"""A headless Chromium, driven over its two pipes by the DevTools protocol."""
import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser():
    return next(filter(None, map(shutil.which, (os.environ.get("MOETUNE_BROWSER", ""), *NAMES))), None)


class Browser:
    """One page. `faults` are what it wrote to the console as errors, and exceptions that nothing caught."""

    def __init__(self, program):
        self.faults, self._buffer, self._last = [], b"", 0
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # its processes may outlive it
        from_us, self._out = os.pipe()
        self._in, to_us = os.pipe()
        words = [program, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
                 "--no-first-run", "--hide-scrollbars", "--disable-dev-shm-usage",
                 f"--user-data-dir={self._folder.name}", "about:blank"]
        # The browser reads descriptor 3 and writes descriptor 4.
        self._process = subprocess.Popen(["sh", "-c", f'exec "$@" 3<&{from_us} 4>&{to_us}', "sh", *words],
                                         pass_fds=(from_us, to_us), stderr=subprocess.DEVNULL)
        os.close(from_us), os.close(to_us)
        self._session = None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._out), os.close(self._in)
        self._folder.cleanup()

    def _message(self, deadline):
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self._in, 1 << 16)
            if not part:
                raise EOFError("the browser has ended")
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def _note(self, message):
        method, of = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.faults.append(of["exceptionDetails"].get("exception", {}).get("description", str(of)))
        if method == "Runtime.consoleAPICalled" and of["type"] in ("error", "warning", "assert"):
            self.faults.append(str(of["args"]))
        if method == "Log.entryAdded" and of["entry"]["level"] == "error":
            self.faults.append(of["entry"]["text"])

    def _call(self, method, timeout_s=60, **params):
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout_s
        while True:
            answer = self._message(deadline)
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._note(answer)

    def look(self, width, height, scheme):
        """The window's size, and the colours that it prefers: light or dark."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self._call("Emulation.setEmulatedMedia", media="",
                   features=[{"name": "prefers-color-scheme", "value": scheme}])

    def print_media(self):
        self._call("Emulation.setEmulatedMedia", media="print")

    def allow_clipboard(self):
        for name in ("clipboard-read", "clipboard-write"):
            self._call("Browser.setPermission", permission={"name": name}, setting="granted")

    def save_into(self, folder):
        self._call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))

    def open(self, path, query=""):
        self._call("Page.navigate", url=pathlib.Path(path).absolute().as_uri() + query)
        self.until("document.body && document.body.dataset.ready === 'yes'")

    def value(self, script):
        result = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", script))
        return result["result"].get("value")

    def until(self, script, timeout_s=30):
        end = time.monotonic() + timeout_s
        while not self.value(script):
            if time.monotonic() > end:
                raise TimeoutError(script)
            time.sleep(0.02)

    def screenshot(self, path, whole=True):
        taken = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        pathlib.Path(path).write_bytes(base64.b64decode(taken["data"]))
