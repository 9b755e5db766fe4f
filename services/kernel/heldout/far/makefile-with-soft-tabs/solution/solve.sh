#!/bin/bash
set -euo pipefail
cd /app
cd press
sed -i -E '/^SOURCES/,/^$/!s/^ {8}/\t/; s/^booklet:.*/booklet: cover.ps pages.ps/' Makefile
