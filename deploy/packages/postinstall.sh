#!/bin/sh
# After installing the deb or rpm: the user, its data directory and its configuration, where they are
# missing. The data directory is there before the first start, for check-config. The service is
# neither enabled nor started: a node that starts before it has its --cluster founds one of its own.
#
# CONFIG REWRITE replaces coordd.conf, so the service's user can put a link there to any file. The
# directory gets its name when it is complete. From then on neither root's scripts nor the package
# managers do anything in it: the package does not own the file.
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers coordd.conf
elif ! getent passwd coordd >/dev/null; then
	useradd --system --user-group --home-dir /var/lib/coordd --no-create-home \
		--shell /usr/sbin/nologin coordd
fi
[ -e /var/lib/coordd ] || install -d -o coordd -g coordd -m 0700 /var/lib/coordd
if [ ! -e /etc/coordd ]; then
	made=$(mktemp -d /etc/coordd.XXXXXX)
	install -o coordd -g coordd -m 0640 /usr/share/coordd/coordd.conf "$made/coordd.conf"
	chown coordd:coordd "$made"
	chmod 0750 "$made"
	mv -T "$made" /etc/coordd
fi
# one of before the package had it
[ ! -f /etc/default/coordd-backup ] || chmod 0600 /etc/default/coordd-backup
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	# an upgrade: the running node hands over and restarts
	systemctl try-restart coordd.service || true
fi
exit 0
