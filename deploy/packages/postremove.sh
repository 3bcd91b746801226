#!/bin/sh
# After purging the deb: its configuration, as the package does not own it. What else is in that
# directory stays. rm removes a link, not what it leads to.
set -e
if [ "$1" = purge ]; then
	rm -f /etc/coordd/coordd.conf
	[ ! -d /etc/coordd ] || rmdir --ignore-fail-on-non-empty /etc/coordd
fi
exit 0
