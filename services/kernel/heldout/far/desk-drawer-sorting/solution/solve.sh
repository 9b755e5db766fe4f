#!/bin/bash
set -euo pipefail
cd /app
cd drawer
mkdir csv txt png
mv *.csv csv/
mv *.txt txt/
mv *.png png/
