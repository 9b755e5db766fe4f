#!/bin/bash
set -euo pipefail
cd /app
tar --exclude=cache --exclude='*.tmp' -czf expedition.tar.gz expedition
