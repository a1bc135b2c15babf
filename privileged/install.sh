#!/bin/sh
# Install clockwatt-clocks on this machine, as root:  ./install.sh
# Take it away again, GPUs put back first:            ./install.sh --uninstall
set -eu
cd "$(dirname "$0")"

helper=/usr/local/sbin/clockwatt-clocks
etc=/etc/clockwatt
sudoers=/etc/sudoers.d/clockwatt
unit=/etc/systemd/system/clockwatt-restore.service

booted_by_systemd() { [ -d /run/systemd/system ]; }

uninstall() {
    rm -f "$sudoers" # first: from here on nobody can set anything
    if [ -x "$helper" ] && [ -d /run/clockwatt ]; then env -i "$helper" restore all; fi
    if booted_by_systemd && [ -f "$unit" ]; then systemctl disable clockwatt-restore; fi
    rm -f "$helper" "$unit" "$etc/slurm-restore"
    rm -rf /run/clockwatt
    echo "Removed. Left for you: $etc/clocks.ini, the group clockwatt, Prolog= and Epilog= in slurm.conf."
}

install_all() {
    /usr/bin/python3 -I -c 'import os, sys; sys.exit(sys.version_info < (3, 9) or not hasattr(os, "pidfd_open"))' || {
        echo "install.sh: /usr/bin/python3 must be Python 3.9 or newer, on Linux 5.3 or newer" >&2
        exit 1
    }
    visudo --check --quiet --file=sudoers
    groupadd --system --force clockwatt
    install -d -m 0755 "$etc"
    install -m 0755 clockwatt-clocks "$helper"
    install -m 0755 slurm-restore "$etc/slurm-restore"
    [ -e "$etc/clocks.ini" ] || install -m 0644 clocks.ini "$etc/clocks.ini"
    if [ -d /etc/systemd/system ]; then install -m 0644 clockwatt-restore.service "$unit"; fi
    if booted_by_systemd; then systemctl enable clockwatt-restore; fi
    install -m 0440 sudoers "$sudoers" # last: from here on it can be used
    cat <<END
Installed. Left for you:
  1. $etc/clocks.ini: where Slurm's configuration lies, and what may be set.
  2. slurm.conf: Prolog=$etc/slurm-restore and Epilog=$etc/slurm-restore (or call it from yours).
  3. usermod --append --groups clockwatt USER, for those who may set clocks in their jobs.
END
}

if [ "$(id -u)" != 0 ]; then
    echo "install.sh: needs root" >&2
    exit 1
fi
case "${1-}" in
"") install_all ;;
--uninstall) uninstall ;;
*)
    echo "usage: install.sh [--uninstall]" >&2
    exit 2
    ;;
esac
