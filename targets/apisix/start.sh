#!/bin/sh
# Runs APISIX in the foreground with the configuration beside this script, from a copy of its installation that holds
# nothing else: `apisix` itself reads and writes conf/ and logs/ of the installation that it belongs to.
set -eu
folder=$(cd "$(dirname "$0")" && pwd)
home=$folder/home
mkdir -p "$home"
cp -R "${APISIX_SOURCE:-/usr/local/apisix}/." "$home"
mkdir -p "$home/conf" "$home/logs"
cp "$folder/config.yaml" "$folder/apisix.yaml" "$home/conf"
cd "$home"
APISIX_HOME=$home "$1" init
exec openresty -p "$home" -c conf/nginx.conf -g 'daemon off;'
