#!/usr/bin/env bash
# g++ and c++ as tests see them, by links of these names: a library that was made before, of the same sources with the same
# options, is a copy of the one kept beside the link, in a folder for one compiler and one processor (tests/run.sh). All else
# the compiler itself does.
KEPT=${0%/*} REAL=${0##*/} PATH=:$PATH:
PATH=${PATH//":$KEPT:"/:} OUTPUT='' PREVIOUS='' OPTIONS=() SOURCES=()
for WORD in "$@"; do
  case $PREVIOUS$WORD in
  -o) ;;
  -o*) OUTPUT=$WORD ;;
  *.cc | *.cpp) SOURCES+=("$WORD") ;;
  *) OPTIONS+=("$WORD") ;;
  esac
  if [ "$WORD" = -o ]; then PREVIOUS=-o; else PREVIOUS=''; fi
done
case "${#SOURCES[@]} ${OPTIONS[*]} " in
[1-9]*' -shared '*) ;;
*) exec "$REAL" "$@" ;;
esac
mapfile -t HEADERS < <(sed -n 's/^#include "\(\/[^"]*\)".*/\1/p' "${SOURCES[@]}" 2>/dev/null)
KEY=$({ printf '%s\n' "$REAL" "${OPTIONS[@]}" && cat "${SOURCES[@]}" "${HEADERS[@]}"; } 2>/dev/null | sha256sum)
KEPT=$KEPT/${KEY%% *}
if cp "$KEPT" "$OUTPUT" 2>/dev/null; then
  touch -c "$KEPT"
  cat "$KEPT.log" >&2
  exit 0
fi
LOG=$("$REAL" "$@" 2>&1)
STATUS=$?
if [ -n "$LOG" ]; then printf '%s\n' "$LOG" >&2; fi
if [ "$STATUS" -gt 128 ]; then kill "-$((STATUS - 128))" $$; fi
if [ "$STATUS" = 0 ]; then
  { printf '%s' "${LOG:+$LOG$'\n'}" >"$KEPT.log.$$" && cp "$OUTPUT" "$KEPT.$$" && mv "$KEPT.log.$$" "$KEPT.log" &&
    mv "$KEPT.$$" "$KEPT"; } 2>/dev/null || true
fi
exit "$STATUS"
