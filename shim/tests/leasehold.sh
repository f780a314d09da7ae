#!/bin/sh
# Stands in for the daemon's program in tests: says how it was started.
echo "$0 $*"
echo "pid $$"
env | grep '^LEASEHOLD_' | grep -v '^LEASEHOLD_SHIMS=' | sort
