#!/bin/bash
set -euo pipefail
cd /app
for mill in husk grind sieve; do "mills/$mill" --about; done
mills/sieve < grain.txt | mills/grind | mills/husk > flour.txt
echo sieve grind husk > order.txt
