#!/bin/sh
# After installing the deb or rpm: the user, its directory, and the owner of the configuration. The
# directory is there before the first start, for check-config. The service is neither enabled nor
# started: a node that starts before it has its --cluster founds one of its own.
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers coordd.conf
elif ! getent passwd coordd >/dev/null; then
	useradd --system --user-group --home-dir /var/lib/coordd --no-create-home \
		--shell /usr/sbin/nologin coordd
fi
chown coordd:coordd /etc/coordd /etc/coordd/coordd.conf
install -d -o coordd -g coordd -m 0700 /var/lib/coordd
chmod 0750 /etc/coordd
chmod 0640 /etc/coordd/coordd.conf
# one of before the package had it
[ ! -f /etc/default/coordd-backup ] || chmod 0600 /etc/default/coordd-backup
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	# an upgrade: the running node hands over and restarts
	systemctl try-restart coordd.service || true
fi
exit 0
