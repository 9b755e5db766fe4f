#!/bin/bash
set -euo pipefail
cd /app
mkdir -p /tmp/crate/manifest /tmp/crate/tables/big-things /tmp/crate/empty
printf 'Crate 88, ten kinds of bolts\n' > /tmp/crate/manifest/cover.txt
head -c 3000 /dev/zero > /tmp/crate/tables/bolts.dat
head -c 9100 /dev/zero > /tmp/crate/tables/big-things/anchors.dat
head -c 9099 /dev/zero > /tmp/crate/tables/zz-chains.dat
printf 'x\n' > /tmp/crate/readme
ln -s tables/bolts.dat /tmp/crate/latest
tar -C /tmp/crate --sort=name --mtime=@0 --owner=0 --group=0 -czf crate.tar.gz manifest tables empty readme latest
rm -r /tmp/crate
