"""A real SLURM of one node on this machine, for tests: its daemons run until `stop`."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol")
FOLDER = Path("/etc/slurm")  # job steps read the configuration there, whatever SLURM_CONF says
SPOOL = Path("/var/spool")

# The node has one GPU for SLURM; its file is not one.
_GRES = "NodeName={host} Name=gpu File=/dev/zero\n"
_CONFIGURATION = """# written by lmperf's tests
ClusterName=lmperf
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
StateSaveLocation={spool}/slurmctld
SlurmdSpoolDir={spool}/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
KillWait=5
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory} Gres=gpu:1 State=UNKNOWN
PartitionName=first Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str | None:
    """Why no SLURM can be started here; None if it can."""
    if os.environ.get("LMPERF_SLURM") != "1":
        return "takes minutes: set LMPERF_SLURM=1 to run it"
    if os.geteuid() != 0:
        return "starting SLURM needs root"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    if absent := [name for name in PROGRAMS if not shutil.which(name, path=path)]:
        return f"SLURM is not installed (slurm-wlm, munge): no {', '.join(absent)}"
    if not find_spec("snakemake_executor_plugin_slurm"):
        return "snakemake-executor-plugin-slurm is not installed"
    conf = FOLDER / "slurm.conf"
    if conf.exists() and "lmperf" not in conf.read_text():
        return f"{conf} is that of a real cluster"
    return None


class Slurm:
    """Starts the daemons on construction."""

    def __init__(self) -> None:
        # Another test process may run one: there can be only one on a machine.
        self._lock = os.open("/run/lmperf-slurm.lock", os.O_CREAT | os.O_RDWR)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.host = socket.gethostname().partition(".")[0]
        pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        known = {"host": self.host, "spool": SPOOL, "cpus": os.cpu_count()}
        known["memory"] = min(16_000, int(0.9 * pages / 2**20))
        for name in ("slurmctld", "slurmd"):
            shutil.rmtree(SPOOL / name, ignore_errors=True)
            (SPOOL / name).mkdir(parents=True)
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / "slurm.conf").write_text(_CONFIGURATION.format(**known))
        (FOLDER / "gres.conf").write_text(_GRES.format(**known))
        munge = Path("/run/munge")
        munge.mkdir(exist_ok=True)
        shutil.chown(munge, "munge")
        self._daemons: list[subprocess.Popen] = []
        self._start("/usr/sbin/munged", "--foreground", user="munge")
        self._until(lambda: (munge / "munge.socket.2").exists())
        # By these names: the `-wlm` ones drop Gres.
        self._start("/usr/sbin/slurmctld", "-D")
        self._start("/usr/sbin/slurmd", "-D", "-N", self.host)
        self._until(lambda: "idle" in self.ask("sinfo", "--noheader", "--format=%T"))

    def _start(self, *command: str, user: str | None = None) -> None:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._daemons.append(subprocess.Popen(command, user=user, start_new_session=True, **quiet))

    def ask(self, *command: str) -> str:
        """Run a command of SLURM; return what it prints."""
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return done.stdout

    def jobs(self, state: str) -> list[str]:
        """The ids of the jobs in a state, such as RUNNING."""
        return self.ask("squeue", "--noheader", f"--states={state}", "--format=%i").split()

    def node(self, state: str) -> None:
        """Set the state of the node: drain, down or resume."""
        self.ask("scontrol", "update", f"nodename={self.host}", f"state={state}", "reason=test")

    def stop(self) -> None:
        """End all jobs and the daemons, and remove the configuration."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.ask("scancel", "--user=root", "--signal=KILL")
            self.ask("scancel", "--user=root")
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for name in ("slurm.conf", "gres.conf"):
            (FOLDER / name).unlink(missing_ok=True)
        os.close(self._lock)

    @staticmethod
    def _until(holds, limit_s: float = 60.0) -> None:
        until = time.monotonic() + limit_s
        while not holds():
            if time.monotonic() > until:
                raise TimeoutError("SLURM did not start")
            time.sleep(0.2)
