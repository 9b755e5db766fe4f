#!/bin/bash
set -euo pipefail
cd /app
chmod a+x belfry/ring.sh
cd belfry
./ring.sh
