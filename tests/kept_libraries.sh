#!/usr/bin/env bash
# g++ as tests see it: a library that it made before, of the same sources with the same options, is a copy of the one kept
# beside this file, in a folder for one compiler and one processor (tests/run.sh). What else is asked of it, g++ does.
KEPT=${0%/*} PATH=:$PATH:
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
case " ${OPTIONS[*]} " in
*' -shared '*) ;;
*) exec g++ "$@" ;;
esac
KEY=$({ printf '%s\n' "${OPTIONS[@]}" && cat "${SOURCES[@]}"; } 2>/dev/null | sha256sum)
KEPT=$KEPT/${KEY%% *}
if cp "$KEPT" "$OUTPUT" 2>/dev/null; then
  touch -c "$KEPT"
  cat "$KEPT.log" >&2
  exit 0
fi
LOG=$(g++ "$@" 2>&1)
STATUS=$?
if [ -n "$LOG" ]; then printf '%s\n' "$LOG" >&2; fi
if [ "$STATUS" -gt 128 ]; then kill "-$((STATUS - 128))" $$; fi
if [ "$STATUS" = 0 ]; then
  { printf '%s' "${LOG:+$LOG$'\n'}" >"$KEPT.log.$$" && cp "$OUTPUT" "$KEPT.$$" && mv "$KEPT.log.$$" "$KEPT.log" &&
    mv "$KEPT.$$" "$KEPT"; } 2>/dev/null || true
fi
exit "$STATUS"
