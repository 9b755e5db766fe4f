#!/bin/bash
set -euo pipefail
cd /app
cat > roman <<'PY'
#!/usr/bin/env python3
import sys

PAIRS = [(1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]


def numeral(number):
    text = ""
    for value, letters in PAIRS:
        text += letters * (number // value)
        number %= value
    return text


KNOWN = {numeral(number): number for number in range(1, 4000)}
asked = sys.argv[1] if len(sys.argv) == 2 else ""
if asked in KNOWN:
    print(KNOWN[asked])
elif asked.isascii() and asked.isdigit() and 1 <= int(asked) <= 3999:
    print(numeral(int(asked)))
else:
    print("invalid")
    sys.exit(1)
PY
chmod +x roman
