#!/bin/bash
set -euo pipefail
cd /app
chmod 644 belfry/ring.sh belfry/silence.sh
