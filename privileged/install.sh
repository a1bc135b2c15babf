#!/bin/sh
# clockwatt-clocks on this machine, as root:
#   ./install.sh                      install it, or bring it up to date; what is set, and clocks.ini, stay as they are
#   ./install.sh --check [USER]       say what is wrong on this node, and change nothing; groups as a job of USER has them
#   ./install.sh --disable            nobody can set anything from now on; what is set ends with its job. install.sh enables
#   ./install.sh --uninstall [--now]  disable it and take it away, unless jobs hold GPUs by it; --now puts those back at once
set -eu
cd "$(dirname "$0")"

helper=/usr/local/sbin/clockwatt-clocks
etc=/etc/clockwatt
leases=/run/clockwatt
sudoers=/etc/sudoers.d/clockwatt
unit=/etc/systemd/system/clockwatt-restore.service

booted_by_systemd() { [ -d /run/systemd/system ]; }

# Whoever reads the file meanwhile, as a job's sudo or slurmd, finds the old or the new one, whole.
replace() { # MODE FROM TO
    install -m "$1" "$2" "$3.new~" # sudo reads no file whose name ends so
    mv -f "$3.new~" "$3"
}

# Put the rule in place as this sudo knows it: !intercept came with 1.9.8.
replace_rule() { # FROM
    cp "$1" "$etc/rule"
    visudo --check --quiet --file="$etc/rule" 2>/dev/null || sed -i 's/, !intercept//' "$etc/rule"
    visudo --check --quiet --file="$etc/rule"
    replace 0440 "$etc/rule" "$sudoers"
    rm "$etc/rule"
}

install_all() {
    /usr/bin/python3 -I -c 'import os, sys; os.pidfd_open(os.getpid()); sys.exit(sys.version_info < (3, 9))' || {
        echo "install.sh: /usr/bin/python3 must be Python 3.9 or newer, on Linux 5.3 or newer" >&2
        exit 1
    }
    getent group clockwatt >/dev/null || {
        echo "install.sh: create the group first, with one number GID on all hosts, slurmctld's included:
groupadd --system --gid GID clockwatt" >&2
        exit 1
    }
    install -d -m 0755 "$etc" "${helper%/*}"
    replace 0755 clockwatt-clocks "$helper"
    replace 0755 slurm-restore "$etc/slurm-restore"
    [ -e "$etc/clocks.ini" ] || replace 0644 clocks.ini "$etc/clocks.ini"
    if [ -d /etc/systemd/system ]; then replace 0644 clockwatt-restore.service "$unit"; fi
    if booted_by_systemd; then systemctl enable clockwatt-restore; fi
    replace_rule sudoers # last: from here on it can be used
    env -i "$helper" status >/dev/null || echo "install.sh: $(env -i "$helper" status)" >&2
    cat <<END
Installed. Left for you, and ./install.sh --check says if it is done and right:
  1. $etc/clocks.ini: where Slurm's configuration lies, and what may be set.
  2. slurm.conf: Prolog=$etc/slurm-restore and Epilog=$etc/slurm-restore (or call it from yours).
  3. usermod --append --groups clockwatt USER, for those who may set clocks in their jobs.
END
}

disable() {
    install -d -m 0755 "$etc" # slurm.conf may name a script of it still, even where somebody has removed it
    [ -e "$sudoers" ] || return 0
    sed '/^[^#].*CLOCKWATT_SET/d' sudoers >"$etc/sudoers.disabled"
    replace_rule "$etc/sudoers.disabled"
    rm "$etc/sudoers.disabled"
}

# Files of sudoers.d whose name has a dot or ends in ~ are not read by sudo.
rules_elsewhere() {
    for file in /etc/sudoers /etc/sudoers.d/*; do
        case ${file##*/} in "${sudoers##*/}" | *.* | *~) continue ;; esac
        if grep -qs "^[^#]*$helper" "$file"; then echo "$file"; fi
    done
}

say_disabled() {
    elsewhere=$(rules_elsewhere)
    if [ -n "$elsewhere" ]; then
        echo "install.sh: not disabled yet: a rule of sudo's lies elsewhere too, take it away:" $elsewhere >&2
        exit 1
    fi
    echo "Disabled: nobody can set anything. What is set stays until its job puts it back or ends. ./install.sh enables."
}

uninstall() { # [--now]
    disable # first: from here on nobody can set anything
    if [ -x "$helper" ]; then env -i "$helper" restore "${1:-0}" || echo "install.sh: a GPU is not put back" >&2; fi
    if ls "$leases"/*.lease >/dev/null 2>&1; then
        if [ -z "${1-}" ]; then
            why="since jobs hold GPUs: wait for their end, or --uninstall --now"
        else
            why="since these could not be put back: see journalctl -t clockwatt-clocks, and try again. What a reboot is to
put right, forget first: rm $leases/*.lease"
        fi
        echo "install.sh: disabled, but not removed yet, $why" >&2
        exit 1
    fi
    rm -f "$sudoers"
    if booted_by_systemd && [ -f "$unit" ]; then systemctl disable clockwatt-restore; fi
    rm -f "$helper" "$unit"
    rm -rf "$leases"
    printf '#!/bin/sh\n# clockwatt-clocks was removed; slurm.conf may still name this as Prolog and Epilog.\nexit 0\n' >"$etc/stub"
    replace 0755 "$etc/stub" "$etc/slurm-restore"
    rm "$etc/stub"
    cat <<END
Removed. Left for you: Prolog= and Epilog= in slurm.conf, and once they are gone, and scontrol reconfigure has told all
nodes, $etc with clocks.ini and a script slurm-restore that does nothing; the group clockwatt.
END
}

if [ "$(id -u)" != 0 ]; then
    echo "install.sh: needs root" >&2
    exit 1
fi
case "$*" in
"") install_all ;;
--check | "--check "[!-]*) exec /usr/bin/python3 -IS check.py ${2+"$2"} ;;
--disable)
    disable
    say_disabled
    ;;
--uninstall) uninstall ;;
"--uninstall --now") uninstall all ;;
*)
    echo "usage: install.sh [--check [USER] | --disable | --uninstall [--now]]" >&2
    exit 2
    ;;
esac
