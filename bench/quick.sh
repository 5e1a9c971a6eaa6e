#!/usr/bin/env bash
# What the gateway costs beside nginx and HAProxy, on two cores, in a few minutes. Needs nothing but loopback.
#
#   bench/quick.sh                     all sections
#   bench/quick.sh http https          some of: http https policies memory start reload
#   ROUNDS=8 bench/quick.sh http       fewer rounds (30 by default)
set -euo pipefail
cd "$(dirname "$0")/.."
profile=${PROFILE:-release}
cargo build --locked --profile "$profile" --package weir-gateway
weir=${CARGO_TARGET_DIR:-target}/$profile/weir
sections=("$@")
[ ${#sections[@]} -gt 0 ] || sections=(http https policies memory start reload)
for section in "${sections[@]}"; do
  echo "== $section"
  if [ "$section" = policies ]; then
    cargo bench --locked --quiet --profile "$profile" --package weir-proxy --bench serve
  else
    python3 bench/measure.py "$section" --weir "$weir" --rounds "${ROUNDS:-30}"
  fi
done
