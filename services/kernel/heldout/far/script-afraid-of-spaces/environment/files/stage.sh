#!/bin/bash
set -euo pipefail
cd /app
mkdir pile && cd pile
echo one > 'first letter.txt'; echo two > second.txt; echo three > 'a  b.txt'; echo keep > picture.png
