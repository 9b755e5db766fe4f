#!/bin/bash
set -euo pipefail
cd /app
cat notes/start-here.txt notes/blue-binder.txt notes/shelf/third-drawer.txt
mv stores/wick-b.txt stores/wick-in-use.txt
echo RELIT > lamp.txt
