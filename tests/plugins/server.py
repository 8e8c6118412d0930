"""A server of an engine, for the tests: a process at a port of this machine."""

import json
import socket
import subprocess
import time
import urllib.request


def free_port():
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


class Server:
    """health: the route that answers when it lives. log: a file for what it says."""

    def __init__(self, words, env, health, log, seconds=400):
        self.url, self._health = f"http://127.0.0.1:{words[words.index('--port') + 1]}", health
        self._log = open(log, "w")
        # SGLang signals its whole group.
        self.process = subprocess.Popen(words, env=env, stdout=self._log, stderr=self._log, start_new_session=True)
        end = time.monotonic() + seconds
        while not self.lives():
            if self.process.poll() is not None or time.monotonic() > end:
                self.close()
                with open(log) as file:
                    raise RuntimeError(f"the server did not start: {file.read()[-3000:]}")
            time.sleep(0.5)

    def lives(self):
        try:
            with urllib.request.urlopen(f"{self.url}/{self._health}", timeout=30) as answer:
                return answer.status == 200
        except OSError:
            return False

    def post(self, path, body, timeout=120):
        request = urllib.request.Request(
            f"{self.url}/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.loads(answer.read())

    def get(self, path):
        with urllib.request.urlopen(f"{self.url}/{path}", timeout=60) as answer:
            return json.loads(answer.read())

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._log.close()
