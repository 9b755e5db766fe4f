#!/bin/bash
set -euo pipefail
cd /app
printf '10.4.0.12 GET /\n10.4.0.9 GET /\n10.4.0.12 GET /shop\n10.4.0.7 GET /\n' | gzip -n > weblogs/access.log.2.gz
printf '10.4.0.9 GET /\n10.4.0.7 GET /\n10.4.0.12 GET /\n' | gzip -n > weblogs/access.log.3.gz
