#!/bin/bash
set -euo pipefail
cd /app
chmod 755 strongroom/ledger strongroom/ledger/deep && chmod 777 strongroom/stamps
chmod 646 strongroom/ledger/march.txt
chmod 640 strongroom/ledger/april.txt
chmod 602 strongroom/ledger/deep/seal.txt
chmod 757 strongroom/stamps/press.sh
chmod 664 strongroom/stamps/wax.txt
chmod 444 strongroom/index.txt
ln -s ledger/april.txt strongroom/newest
