#!/bin/bash
set -euo pipefail
cd /app
mkdir desk
ln -s /app/library/v1/invoice-template.txt desk/billing
ln -s ../library/v1/reminder-template.txt desk/chasing
ln -s /app/library/v1/receipt-template.txt desk/receipts
ln -s ../library/stamps/paid.txt desk/stamp
printf 'desk notes\n' > desk/notes.txt
