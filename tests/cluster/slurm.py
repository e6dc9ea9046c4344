"""A real Slurm on this machine, of two nodes with four devices each, in a directory and on ports of its own.

Nothing of it needs systemd, and nothing is left behind: munged, slurmctld and one slurmd per node are children of the
process that starts them, and the other daemons and commands find them by ``SLURM_CONF``.
"""

import getpass
import os
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
COMMANDS = ("sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo", "sacct", "sacctmgr", "sshare")
NODES = ("n1", "n2")
DEVICES = 4

# Both nodes are this machine; jobs of the usual partition run on the first. As many CPUs as tests ask for, whatever the
# machine has. Killed quickly and, after a requeue, started again soon (cred_expire).
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=6
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=batch_sched_delay=1,sched_interval=2
SchedulerType=sched/backfill
GresTypes=gpu
ReturnToService=2
KillWait=2
CompleteWait=0
DefMemPerCPU=500
MinJobAge=300
{lines}
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs=8 RealMemory=64000 Gres=gpu:{devices}
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} CPUs=8 RealMemory=64000 Gres=gpu:{devices}
PartitionName=main Nodes=n1 Default=YES State=UP MaxTime=INFINITE
PartitionName=pair Nodes=n1,n2 State=UP MaxTime=INFINITE
"""


def missing() -> str | None:
    """Return why no Slurm can be started here, or None."""
    absent = [name for name in (*DAEMONS, *COMMANDS) if not shutil.which(name, path=PATH)]
    return f"{', '.join(absent)} not installed (Debian: apt-get install slurm-wlm munge)" if absent else None


_DIES_WITH_PARENT = ("setpriv", "--pdeathsig", "TERM")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


class Cluster:
    """A running Slurm; commands are given its ``environment``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**_outside_slurm(), "SLURM_CONF": str(folder / "slurm.conf")}
        # The plugin's jobs lose SLURM_CONF; there is no configuration in /etc, and none of ours shall be there.
        commands = folder / "bin"
        commands.mkdir()
        for name in COMMANDS:
            (commands / name).write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {shutil.which(name)} "$@"\n')
            (commands / name).chmod(0o755)
        self.environment["PATH"] = f"{commands}:{self.environment['PATH']}"

    def __call__(self, *command: str, check: bool = True) -> str:
        """Run a Slurm command and return what it printed."""
        done = subprocess.run(command, env=self.environment, text=True, capture_output=True, timeout=60)
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def jobs(self, states: str = "RUNNING") -> dict[str, str]:
        """Return the comment of each job in one of the ``states``, which says its rule and wildcards, by job id."""
        lines = self("squeue", "--noheader", f"--states={states}", "--format=%i|%k").splitlines()
        return dict(line.split("|", 1) for line in lines)

    def cancel_all(self) -> None:
        """Leave no job of a test to the next."""
        if jobs := self.jobs("PENDING,RUNNING,SUSPENDED,COMPLETING"):
            self("scancel", *jobs, check=False)
            until(lambda: not self.jobs("PENDING,RUNNING,SUSPENDED,COMPLETING"), "jobs to end", 60)


def _outside_slurm() -> dict[str, str]:
    """Return the environment without a surrounding job's variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}


def until(happens: Callable[[], object], what: str, seconds: float = 400, every: float = 0.05) -> None:
    """Wait until ``happens()`` is true."""
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, f"waited {seconds} s in vain for {what}"
        time.sleep(every)


def free_ports(number: int) -> list[int]:
    """Return ports that nobody listens at."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [item.getsockname()[1] for item in sockets]


@contextmanager
def running(
    folder: Path, lines: str = "", first: Callable[["Cluster"], object] = lambda cluster: None
) -> Iterator[Cluster]:
    """Start a Slurm in ``folder`` and stop it at the end.

    ``lines``: more of its configuration; ``first`` is called when its commands work and before its daemons start.
    """
    folder.chmod(0o755)  # munge trusts no socket in a directory that others may write to
    for name in ("state", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir()
    for number in range(DEVICES):
        os.mknod(folder / f"gpu{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))  # /dev/null
    (folder / "gres.conf").write_text(
        "".join(f"NodeName={node} Name=gpu File={folder}/gpu[0-{DEVICES - 1}]\n" for node in NODES)
    )
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(
            host=socket.gethostname(),
            user=getpass.getuser(),
            ports=free_ports(1 + len(NODES)),
            folder=folder,
            devices=DEVICES,
            lines=lines,
        )
    )
    cluster = Cluster(folder)
    with ExitStack() as stack:
        munge(folder, stack, cluster.environment)
        first(cluster)
        start(["slurmctld", "-D"], stack, cluster)
        for node in NODES:
            start(["slurmd", "-D", "-N", node], stack, cluster)
        until(lambda: cluster("sinfo", "-h", "-N", "-o", "%t", check=False).split().count("idle") >= 3, _log(folder))
        stack.callback(cluster.cancel_all)
        yield cluster


def munge(folder: Path, stack: ExitStack, environment: dict[str, str]) -> None:
    """Start the daemon that vouches for who sends a message."""
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    names = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    _start(
        [
            "munged",
            "--foreground",
            "--force",
            f"--key-file={key}",
            *(f"--{option}={folder}/munge.{name}" for option, name in names.items()),
        ],
        stack,
        folder / "munged.out",
        environment,
    )
    until(lambda: (folder / "munge.socket").exists(), f"munged ({folder}/munged.out)", 20)


def start(command: list[str], stack: ExitStack, cluster: Cluster) -> None:
    """Start a daemon of Slurm that ends with ``stack``."""
    _start(
        command, stack, cluster.folder / f"{command[0]}{len(list(cluster.folder.iterdir()))}.out", cluster.environment
    )


def _start(command: list[str], stack: ExitStack, output: Path, environment: dict[str, str]) -> None:
    program = shutil.which(command[0], path=PATH)
    with output.open("w") as stream:
        daemon = subprocess.Popen(
            [*_DIES_WITH_PARENT, str(program), *command[1:]], env=environment, stdout=stream, stderr=stream,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    stack.callback(_stop, daemon)


def _stop(daemon: subprocess.Popen) -> None:
    daemon.terminate()
    try:
        daemon.wait(20)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


class _log:
    """What to look at when the cluster does not start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __str__(self) -> str:
        return f"Slurm's nodes; see {self.folder}/*.log and *.out"
