#!/bin/bash
set -euo pipefail
cd /app
cp -rn incoming/. archive/
