#!/bin/bash
set -euo pipefail
cd /app
mkdir registers_utf8
cd registers
for name in *.reg; do
  if iconv -f UTF-8 -t UTF-8 "$name" > /dev/null 2>&1; then
    cp "$name" "../registers_utf8/$name"
  else
    iconv -f ISO-8859-1 -t UTF-8 "$name" > "../registers_utf8/$name"
    echo "$name"
  fi
done > /app/latin1.txt
