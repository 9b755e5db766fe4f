#!/bin/bash
set -euo pipefail
cd /app
tar -tvzf crate.tar.gz | grep '^-' > /tmp/listing
wc -l < /tmp/listing > members.txt
sort -k3,3nr /tmp/listing | head -n 1 | mawk '{print $6}' > largest.txt
tar -xzOf crate.tar.gz manifest/cover.txt > cover.txt
