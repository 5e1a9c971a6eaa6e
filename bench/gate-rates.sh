#!/usr/bin/env bash
# How often `weirlab gate` is right on this machine: how many gates of a binary with itself pass, and how many find a known
# slowdown. Needs target/release/{weir,weirlab} (or WEIR and WEIRLAB, which name others), a C compiler, and a machine that does nothing else.
#
#   bench/gate-rates.sh [PERCENT=3] [A/A GATES=20] [SLOWED GATES=10] [SECONDS=3600]
#
# A preloaded library makes the slowdown: it spins for a set time for each event that `epoll_wait` returns, of which a proxied
# request has two, the client's bytes and the upstream's. Sockets are read and written past libc, where nothing can be preloaded. The
# version without a slowdown has the library too, with a time of 0.
# When the time is over, the counts so far are printed.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
percent=${1:-3} controls=${2:-20} slowed=${3:-10} seconds=${4:-3600}
weir=${WEIR:-$root/target/release/weir} weirlab=${WEIRLAB:-$root/target/release/weirlab}
work=$(mktemp -d)

cat > "$work/spin.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
static long spin_ns;
static int (*real_epoll_wait)(int, struct epoll_event *, int, int);
__attribute__((constructor)) static void begin(void) {
    real_epoll_wait = dlsym(RTLD_NEXT, "epoll_wait");
    const char *text = getenv("SPIN_NS");
    spin_ns = text ? atol(text) : 0;
}
static void spin(long ns) {
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - from.tv_sec) * 1000000000L + now.tv_nsec - from.tv_nsec < ns);
}
int epoll_wait(int fd, struct epoll_event *events, int max, int timeout) {
    int count = real_epoll_wait(fd, events, max, timeout);
    if (spin_ns > 0 && count > 0) spin(spin_ns * count);
    return count;
}
C
cc -O2 -shared -fPIC -o "$work/spin.so" "$work/spin.c" -ldl

version() { # name, nanoseconds for each event
  printf '#!/bin/sh\nLD_PRELOAD=%s SPIN_NS=%s exec %s "$@"\n' "$work/spin.so" "$2" "$weir" > "$work/$1"
  chmod +x "$work/$1"
}

cost() { # the median CPU time per request of the version without a slowdown, in nanoseconds
  python3 - "$work" <<'P'
import glob, json, statistics, sys
costs = [1e3 * block["target"]["cpu_us"] / block["good"]
         for name in glob.glob(sys.argv[1] + "/runs/*/data.json")
         for cell in json.load(open(name))["cells"][:2] for block in cell["blocks"] if block["good"]]
print(round(statistics.median(costs)))
P
}

gate() { # version, number: prints the gate's last line
  local said
  said=$(cd "$root" && "$weirlab" gate "$work/plain" "$work/$1" --effect "$percent%" --limit 4m --seed "$2" --out "$work/runs" \
    2> "$work/errors" | tail -n 1) || true
  echo "$1 $2: $said" | tee -a "$work/said"
}

count() { grep -c "^$1 [0-9]*: $2" "$work/said" || true; }

version plain 0
version same 0
gate same 1
same=1 slow=0
while [ "$SECONDS" -lt "$seconds" ] && [ $((same + slow)) -lt $((controls + slowed)) ]; do
  if [ "$slow" -lt "$slowed" ]; then
    slow=$((slow + 1))
    version slow $(($(cost) * percent / 200))
    gate slow "$slow"
  fi
  for _ in 1 2; do
    if [ "$same" -lt "$controls" ] && [ "$SECONDS" -lt "$seconds" ]; then
      same=$((same + 1))
      gate same "$same"
    fi
  done
done
echo "A/A: $(count same pass) of $same pass. Slower by $percent %: $(count slow regression) of $slow are found. Data: $work"
