#!/bin/bash
set -euo pipefail
cd /app
ln -s ../trail/footbridge.txt signposts/crossing
ln -s /app/trail/hay-meadow signposts/lunch
ln -s ../trail/summit.txt signposts/viewpoint
ln -s crossing signposts/alternate
ln -s /app/trail/hay-meadow/lake.txt signposts/swimming
