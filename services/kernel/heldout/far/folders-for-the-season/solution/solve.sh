#!/bin/bash
set -euo pipefail
cd /app
mkdir -p festival/2033/stage-north festival/2033/stage-south festival/2033/kitchen/stores
