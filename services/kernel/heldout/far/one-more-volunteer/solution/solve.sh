#!/bin/bash
set -euo pipefail
cd /app
echo 'Mireille Duval' >> volunteers.txt
