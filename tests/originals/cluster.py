"""Nodes of both kinds as processes: their files, signals and deaths.

A kind is one letter: `R` is this service, `C` an original node. Both read the same files.
"""

import os
import shutil
import signal
import socket
import subprocess
import time

PORT = 7253
READY_S = 30


class Binaries:
    """Where the two programs are."""

    ours = ""
    original = ""


class Node:
    """One process, or the place of one."""

    def __init__(self, folder, kind, address, instance):
        self.folder, self.kind, self.address, self.instance = folder, kind, address, instance
        self.name = f"{address}:{PORT}"
        self.site = ("site1", [])
        self.environment = {}
        self.process = None
        os.makedirs(folder, exist_ok=True)

    def file(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.file(name), "w", encoding="ascii") as file:
            file.write(text)

    def write_files(self, staying, joining=(), leaving=()):
        self.write(
            "local.conf",
            f"[http]\nbind-address = {self.address}\nbind-port = {PORT}\n"
            f"[logging]\nfolder = {self.folder}\nlevel = 2\n"
            f"[identity]\ninstance_id = {self.instance}\ndeployment_id = 0\n",
        )
        lines = [f"[cluster]\nlocalhost = {self.name}\n"]
        for key, names in (("node", staying), ("joining", joining), ("leaving", leaving)):
            lines += [f"{key} = {name}\n" for name in names]
        self.write("cluster.conf", "".join(lines))
        local, remote = self.site
        lines = [f"[sites]\nlocal_site = {local}\n"]
        lines += [f"remote_site = {name}={address}\n" for name, address in remote]
        if remote:
            lines.append("replicate_timers_across_sites = true\n")
        # An original refuses bursts beyond its throttle: that is not what is looked at here.
        rate = "".join(
            f"{key} = 100000\n" for key in ("max_tokens", "initial_token_rate", "min_token_rate")
        )
        self.write("shared.conf", "".join(lines) + f"[throttling]\n{rate}")

    def start(self, is_waited_for=True):
        arguments = [
            *("--local-config-file", self.file("local.conf")),
            *("--cluster-config-file", self.file("cluster.conf")),
            *("--shared-config-file", self.file("shared.conf")),
            *("--dns-config-file", self.file("dns.json")),
            *("--pidfile", self.file("pid")),
        ]
        is_ours = self.kind == "R"
        command = [Binaries.ours if is_ours else Binaries.original, *arguments]
        environment = dict(os.environ)
        if is_ours:
            command += ["--admin", f"{self.address}:{PORT + 1}"]
            environment.update(CHRONOS_NODE_CORES="0", **self.environment)
        with open(self.file("output"), "ab") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, env=environment, cwd=self.folder
            )
        if is_waited_for:
            self.wait_until_ready()

    def wait_until_ready(self):
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.kind} {self.name} ended: {self.last_words()}")
            try:
                with socket.create_connection((self.address, PORT), timeout=1):
                    return
            except OSError:
                time.sleep(0.02)
        raise RuntimeError(f"{self.kind} {self.name} does not listen: {self.last_words()}")

    def last_words(self):
        with open(self.file("output"), errors="replace", encoding="utf-8") as output:
            return output.read()[-600:]

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def signal(self, number):
        if self.is_running():
            self.process.send_signal(number)

    def kill(self):
        """Kills it and does not look back: whoever starts it again may be too early."""
        self.signal(signal.SIGKILL)
        self.process.wait(10)

    def stop(self):
        """Stops it in order. An original takes a second or two, and some never end."""
        self.signal(signal.SIGTERM)
        try:
            self.process.wait(8)
        except subprocess.TimeoutExpired:
            self.kill()


class Cluster:
    """Nodes of one story, at addresses of their own."""

    def __init__(self, folder, block, kinds):
        shutil.rmtree(folder, ignore_errors=True)
        self.folder, self.block = folder, block
        self.nodes = [self.new_node(place, kind) for place, kind in enumerate(kinds)]

    def new_node(self, place, kind):
        address = f"127.0.{self.block}.{place + 1}"
        return Node(os.path.join(self.folder, str(place)), kind, address, place + 1)

    def add(self, kind):
        self.nodes.append(self.new_node(len(self.nodes), kind))
        return self.nodes[-1]

    def write_files(self, staying, joining=(), leaving=(), of=None):
        names = [[node.name for node in nodes] for nodes in (staying, joining, leaving)]
        for node in of or self.nodes:
            node.write_files(*names)

    def start(self, nodes=None):
        nodes = nodes or self.nodes
        self.write_files(nodes, of=nodes)
        for node in nodes:
            node.start(is_waited_for=False)
        for node in nodes:
            node.wait_until_ready()
        # Links between ours and the first resynchronisations.
        time.sleep(2)

    def end(self):
        for node in self.nodes:
            if node.is_running():
                node.signal(signal.SIGKILL)
                node.process.wait(10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
