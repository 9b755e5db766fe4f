#!/bin/bash
set -euo pipefail
cd /app
cp documents/charter-signed.txt safe/
