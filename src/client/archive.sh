#!/bin/sh
# archive.sh OUT.a WORKDIR IN.a...: one relocatable object out of all, with everything but caisson_* made local.
set -eu
out=$1 work=$2
shift 2
mkdir -p "$work"
# b_lto objects would need the compiler here; this library is built without.
ld -r -o "$work/caisson.o" --whole-archive "$@"
objcopy --wildcard --keep-global-symbol='caisson_*' "$work/caisson.o"
rm -f "$out"
ar rcs "$out" "$work/caisson.o"
