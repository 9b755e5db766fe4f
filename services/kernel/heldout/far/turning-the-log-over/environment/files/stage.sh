#!/bin/bash
set -euo pipefail
cd /app
printf 'lit at 18:07\n' | gzip -n > lamp/lamp.log.2.gz
printf 'lit at 18:09\n' | gzip -n > lamp/lamp.log.3.gz
