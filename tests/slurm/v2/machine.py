"""A virtual machine with cgroup v2 and without systemd: Debian's kernel under QEMU, on this machine's files.

    python tests/slurm/v2/machine.py COMMAND        # run a Bash command in it, as root in the repository

It reads this machine's files by 9p and keeps what it writes in memory. KVM is used where it is there.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
NEEDED = ("qemu-system-x86_64", "busybox", "cpio", "depmod", "dpkg-deb", "apt-get")
PACKAGES = "qemu-system-x86 busybox-static cpio kmod"
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
KERNEL = "linux-image-amd64"
_ENDED = re.compile(r"^ended with (\d+)\r?$", re.MULTILINE)
_GUEST = """
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
hostname v2
echo 127.0.0.1 localhost v2 >/etc/hosts
rm -rf /etc/clockwatt /usr/local/sbin/clockwatt-clocks /etc/sudoers.d/clockwatt
cd {repository}
( {command} )
echo "ended with $?"
sync
echo o >/proc/sysrq-trigger
sleep 60
"""


def lacking() -> str:
    """What this machine lacks to run it; empty if nothing."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} missing: apt-get install {PACKAGES}"
    return "the machine has a /tmp of its own: test a checkout elsewhere" if REPOSITORY.is_relative_to("/tmp") else ""


def kernel(folder: Path) -> Path:
    """Fetch Debian's kernel into a folder, without installing it; the folder of its modules."""
    said = subprocess.run(["apt-cache", "depends", KERNEL], capture_output=True, text=True, check=True).stdout
    (package,) = re.findall(r"Depends: (linux-image-\S+)", said)
    subprocess.run(["apt-get", "download", "--quiet", package], cwd=folder, check=True, capture_output=True)
    (archive,) = folder.glob("*.deb")
    subprocess.run(["dpkg-deb", "-x", archive, folder], check=True)
    (modules,) = (folder / "lib" / "modules").iterdir()
    subprocess.run(["depmod", "-b", folder, modules.name], check=True)
    return modules


def initramfs(folder: Path, modules: Path, guest: str) -> Path:
    """Write the machine's first file system: Busybox, the modules in the order of loading, `init`."""
    root = folder / "initramfs"
    (root / "modules").mkdir(parents=True)
    (root / "bin").mkdir()
    shutil.copy(shutil.which("busybox") or "", root / "bin")
    needs = {
        Path(name).stem: [Path(one) for one in [name, *needed.split()]]
        for name, _, needed in (line.partition(":") for line in (modules / "modules.dep").read_text().splitlines())
    }
    order = dict.fromkeys(path for name in MODULES for path in reversed(needs[name]))
    for path in order:
        shutil.copy(modules / path, root / "modules")
    (root / "modules" / "order").write_text("\n".join(path.name for path in order))
    init = root / "init"
    init.write_text((HERE / "init").read_text().replace('"$GUEST"', guest))
    init.chmod(0o755)
    names = "\n".join(str(path.relative_to(root)) for path in root.rglob("*"))
    packed = subprocess.run(
        ["cpio", "-o", "-H", "newc", "--quiet"], cwd=root, input=names.encode(), capture_output=True, check=True
    )
    (folder / "initramfs.cpio").write_bytes(packed.stdout)
    return folder / "initramfs.cpio"


def run(command: str, timeout_s: float = 1800) -> tuple[int | None, str]:
    """Run a Bash command in a fresh machine; its exit code, None where the machine ended before, and its output."""
    with tempfile.TemporaryDirectory(prefix="v2-", dir="/var/tmp") as name:  # /tmp is the machine's own
        folder = Path(name)
        modules = kernel(folder)
        guest = folder / "guest"
        guest.write_text(_GUEST.format(repository=REPOSITORY, command=command))
        (image,) = (folder / "boot").glob("vmlinuz-*")
        done = subprocess.run(
            [
                "qemu-system-x86_64", "-machine", "q35,accel=tcg", "-cpu", "max", "-smp", "2", "-m", "4096",
                "-nographic", "-no-reboot", "-nic", "none", "-kernel", image,
                "-initrd", initramfs(folder, modules, str(guest)), "-append", "console=ttyS0 panic=-1 quiet",
                "-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
            ],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False,
        )  # fmt: skip
    ended = _ENDED.search(done.stdout)
    return int(ended[1]) if ended else None, done.stdout + done.stderr


if __name__ == "__main__":
    code, printed = run(sys.argv[1])
    print(printed)
    sys.exit(1 if code is None else code)
