#!/bin/bash
set -euo pipefail
cd /app
cd deploy
cp shop.yaml shop.yaml.previous
sed -i '/^  storefront-canary:/,$d' shop.yaml
sed -i '/^  storefront:/,/^  mailer:/{s/storefront:3\.1\.0/storefront:3.2.0/;s/replicas: 2/replicas: 4/}' shop.yaml
