"""Network namespaces that stand for hosts: each with an address of its own, on one bridge. They need root and iproute2.

with Namespaces(2, gbit=1) as hosts:
    process = subprocess.Popen(hosts.command(1, ["shoal", "train", …]))
    hosts.cut(1)
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType


def why_not() -> str | None:
    """Why this machine has none; None where it does."""
    if shutil.which("ip") is None:
        return "there is no ip (Debian: iproute2)"
    if os.geteuid() != 0:
        return "network namespaces with addresses of their own need root"
    name = f"shoal-{os.getpid()}-try"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if tried.returncode != 0:
        return f"this machine makes no network namespaces: {tried.stderr.strip()}"
    subprocess.run(["ip", "netns", "delete", name], check=True)
    return None


class Namespaces:
    """
    Args:
        count: hosts, numbered from 0.
        gbit: what each may send, in Gbit/s, by a token bucket (tc tbf); None: as much as the machine does.

    Raises:
        CalledProcessError: where `why_not` says something.
    """

    def __init__(self, count: int, *, gbit: float | None = None) -> None:
        self._prefix = f"shoal-{os.getpid()}"
        self._made: list[str] = []
        self._names: str | None = None
        self.count = count
        try:
            self._build(gbit)
        except BaseException:
            self.close()
            raise

    def _build(self, gbit: float | None) -> None:
        hub = self._add("hub")
        _ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", hub, "link", "set", "bridge", "up")
        for host in range(self.count):
            name = self._add(str(host))
            _ip("-n", hub, "link", "add", f"to{host}", "type", "veth", "peer", "name", "net", "netns", name)
            _ip("-n", hub, "link", "set", f"to{host}", "master", "bridge", "up")
            _ip("-n", name, "address", "add", f"{self.address(host)}/24", "dev", "net")
            _ip("-n", name, "link", "set", "net", "up")
            _ip("-n", name, "link", "set", "lo", "up")
            if gbit is not None:
                rate = ["rate", f"{gbit * 1000:.0f}mbit", "burst", "512kb", "latency", "50ms"]
                _run(self.command(host, ["tc", "qdisc", "add", "dev", "net", "root", "tbf", *rate]))

    def _add(self, name: str) -> str:
        _ip("netns", "add", f"{self._prefix}-{name}")
        self._made.append(f"{self._prefix}-{name}")
        return self._made[-1]

    def address(self, host: int) -> str:
        return f"10.77.0.{host + 1}"

    def command(self, host: int, words: Sequence[str]) -> list[str]:
        """The same command, on that host."""
        enter = ["nsenter", f"--net=/run/netns/{self._prefix}-{host}", *words]
        if self._names is None:
            return enter
        bound = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", bound, "sh", self._names, *enter]

    def pids(self, host: int) -> list[str]:
        """The processes there."""
        return _pids(f"{self._prefix}-{host}")

    def name(self, hosts: Path) -> None:
        """What all of them read as /etc/hosts, in commands that begin from now on."""
        self._names = str(hosts)

    def cut(self, host: int) -> None:
        """Nothing comes from it, or to it, any more."""
        _ip("-n", f"{self._prefix}-{host}", "link", "set", "net", "down")

    def close(self) -> None:
        """Ends what still runs there. Idempotent."""
        while self._made:
            name = self._made.pop()
            for pid in _pids(name):
                subprocess.run(["kill", "-9", pid], capture_output=True)
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)

    def __enter__(self) -> Namespaces:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _pids(name: str) -> list[str]:
    return subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()


def _ip(*words: str) -> None:
    _run(["ip", *words])


def _run(words: Sequence[str]) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)
