#!/bin/bash
set -euo pipefail
cd /app
sed -i '/^\[replica\]/,/^\[/{s/^timeout = .*/timeout = 75/;s/^read_only = .*/read_only = yes/}' cluster.ini
