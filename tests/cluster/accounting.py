"""A real accounting database beside a Slurm of the tests: MariaDB and slurmdbd in the same folder."""

import getpass
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import slurm

PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db")
CONFIGURATION = """
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={ports[0]}
SlurmUser={user}
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={ports[1]}
StorageUser={user}
StorageLoc=accounting
"""


def missing() -> str | None:
    """Return why no accounting can be started here, or None."""
    absent = [name for name in PROGRAMS if not shutil.which(name, path=slurm.PATH)]
    return f"{', '.join(absent)} not installed (Debian: apt-get install slurmdbd mariadb-server)" if absent else None


@contextmanager
def running(folder: Path) -> Iterator[slurm.Cluster]:
    """Start a Slurm with accounting in ``folder``, with an account ``ours`` for this user."""
    user, ports = getpass.getuser(), slurm.free_ports(2)
    with ExitStack() as stack:

        def database(cluster: slurm.Cluster) -> None:
            data = folder / "database"
            install = ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--skip-test-db", f"--user={user}"]
            subprocess.run(install, check=True, capture_output=True)
            options = [f"--datadir={data}", f"--socket={folder}/mariadb.socket", f"--pid-file={data}/pid"]
            options += [f"--user={user}"]
            options += ["--bind-address=127.0.0.1", f"--port={ports[1]}", "--skip-grant-tables"]
            slurm.start(["mariadbd", "--no-defaults", *options], stack, cluster)
            slurm.until((folder / "mariadb.socket").exists, "MariaDB", 60)
            configuration = folder / "slurmdbd.conf"
            configuration.touch(mode=0o600)
            configuration.write_text(CONFIGURATION.format(folder=folder, user=user, ports=ports))
            slurm.start(["slurmdbd", "-D"], stack, cluster)
            add = ("sacctmgr", "-i", "add")
            slurm.until(lambda: "Adding" in cluster(*add, "cluster", "test", check=False), "slurmdbd", 60)
            cluster(*add, "account", "ours", "cluster=test")
            cluster(*add, "user", user, "account=ours", "cluster=test", check=False)

        lines = "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
        lines += f"AccountingStoragePort={ports[0]}\nAccountingStoragePass={folder}/munge.socket"
        yield stack.enter_context(slurm.running(folder, lines, database))
