#!/bin/sh
# Before removing the package, but not before an upgrade. The data and the user stay.
set -e
case "$1" in
remove | 0) [ ! -d /run/systemd/system ] || systemctl disable --now coordd.service \
	coordd-backup.timer ;;
esac
exit 0
