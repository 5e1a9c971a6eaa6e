#!/usr/bin/env bash
# What routes and plugins add, without sockets: nanoseconds, and instructions where valgrind is installed. Instructions
# are the difference between two runs, so that what starting takes is not counted.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=${PROFILE:-release}
cargo bench --locked --quiet --profile "$profile" --package weir-proxy --bench serve
command -v valgrind >/dev/null || exit 0
benchmark=$(cargo bench --locked --profile "$profile" --package weir-proxy --bench serve --no-run 2>&1 |
  sed -n 's/.*Executable.*(\(.*\))/\1/p')
instructions() {
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$benchmark" "$1" "$2" 2>&1 | sed -n 's/.*Collected : //p'
}
for case in plain-1 plain-100 plain-10000 rate-limiting-1 rate-limiting-key-auth-1 rate-limiting-basic-auth-1 \
  request-transformer-1 request-transformer-templates-1; do
  few=$(instructions "$case" 1000)
  many=$(instructions "$case" 3000)
  printf '%-32s%12d instructions/request\n' "$case" $(((many - few) / 2000))
done
