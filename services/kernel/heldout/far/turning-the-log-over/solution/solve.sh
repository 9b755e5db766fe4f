#!/bin/bash
set -euo pipefail
cd /app
cd lamp
mv lamp.log.2.gz lamp.log.3.gz
gzip -n lamp.log.1
mv lamp.log.1.gz lamp.log.2.gz
mv lamp.log lamp.log.1
: > lamp.log
