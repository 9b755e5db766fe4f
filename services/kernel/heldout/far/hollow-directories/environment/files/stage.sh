#!/bin/bash
set -euo pipefail
cd /app
mkdir -p warehouse/aisle-01/shelf-a/bin-3 warehouse/aisle-04/shelf-c warehouse/aisle-07/returns/pending warehouse/overflow
mkdir -p warehouse/dock && touch warehouse/dock/.placeholder
