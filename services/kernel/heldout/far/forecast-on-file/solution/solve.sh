#!/bin/bash
set -euo pipefail
cd /app
./forecast "$(cat next_stop.txt)" > forecast_today.txt
