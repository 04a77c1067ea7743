"""A Slurm of its own, whose nodes n1, n2, … are network namespaces of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from namespaces import Namespaces

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
PACKAGES = "slurm-wlm, munge"
START = 60


def why_not() -> str | None:
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"there is no {', '.join(missing)} (Debian: {PACKAGES})" if missing else None


class Slurm:
    """
    Args:
        hosts: node n1 is the first of them.
    """

    def __init__(self, hosts: Namespaces) -> None:
        self._hosts = hosts
        self._stack = ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-slurm-")))
        self._folder.chmod(0o755)  # munged wants others to reach its socket
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        key = self._folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        (self._folder / "state").mkdir()
        for host in range(self._hosts.count):
            (self._folder / f"n{host + 1}").mkdir()
        self.config = self._folder / "slurm.conf"
        self.config.write_text(self._configuration())
        names = "".join(f"{self._hosts.address(host)} n{host + 1}\n" for host in range(self._hosts.count))
        hosts_file = self._folder / "hosts"
        hosts_file.write_text(f"127.0.0.1 localhost\n{names}")
        self._hosts.name(hosts_file)
        files = {name: str(self._folder / f"munge.{name}") for name in ("socket", "pid", "log", "seed")}
        words = ["munged", "-F", "--force", "--key-file", str(key), "--socket", files["socket"]]
        self._daemon(0, [*words, "--pid-file", files["pid"], "--log-file", files["log"], "--seed-file", files["seed"]])
        self._daemon(0, ["slurmctld", "-D", "-f", str(self.config)])
        for host in range(self._hosts.count):
            self._daemon(host, ["slurmd", "-D", "-N", f"n{host + 1}", "-f", str(self.config)])
        deadline = time.monotonic() + START
        while (idle := self.run(["sinfo", "-h", "-t", "idle", "-o", "%D"]).stdout.strip()) != str(self._hosts.count):
            if time.monotonic() > deadline:
                logs = "\n".join(file.read_text()[-2000:] for file in self._folder.glob("*.log"))
                raise RuntimeError(f"of Slurm's nodes {idle or 0} are idle after {START} s\n{logs}")
            time.sleep(0.2)

    def _configuration(self) -> str:
        host = os.uname().nodename
        nodes = "\n".join(
            f"NodeName=n{i + 1} NodeHostname={host} NodeAddr={self._hosts.address(i)} Port={17001 + i} CPUs=1 State=UNKNOWN"
            for i in range(self._hosts.count)
        )
        return f"""
ClusterName=box
SlurmctldHost={host}({self._hosts.address(0)})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={self._folder}/munge.socket
StateSaveLocation={self._folder}/state
SlurmctldPidFile={self._folder}/slurmctld.pid
SlurmctldLogFile={self._folder}/slurmctld.log
SlurmdSpoolDir={self._folder}/%n
SlurmdPidFile={self._folder}/%n.pid
SlurmdLogFile={self._folder}/%n.log
SlurmctldPort=16817
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

    def _daemon(self, host: int, words: list[str]) -> None:
        output = self._stack.enter_context((self._folder / f"{words[0]}-{host}.log").open("w"))
        process = subprocess.Popen(self._hosts.command(host, words), stdout=output, stderr=output)
        self._stack.callback(process.wait)
        self._stack.callback(process.terminate)

    def run(self, words: list[str], seconds: float = 600, **variables: str) -> subprocess.CompletedProcess[str]:
        """A command of Slurm's, on the first node."""
        environment = {**os.environ, "SLURM_CONF": str(self.config), **variables}
        return subprocess.run(
            self._hosts.command(0, words), env=environment, capture_output=True, text=True, timeout=seconds
        )

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Slurm:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
