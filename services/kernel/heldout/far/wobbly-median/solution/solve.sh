#!/bin/bash
set -euo pipefail
cd /app
sed -i 's/^    return ordered\[half\]/    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) \/ 2/' middle
sed -i 's/\[line for line in open(sys.argv\[1\])\]/[float(line) for line in open(sys.argv[1]) if line.strip()]/' middle
sed -i 's/print(median(numbers))/print(f"{median(numbers):.1f}")/' middle
