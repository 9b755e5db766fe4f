#!/bin/bash
set -euo pipefail
cd /app
printf '3 May: J\xf6rg M\xfcller\n9 May: Ren\xe9e Dubois\n' > registers/1898_births.reg
printf '1 June: S\xc3\xb8ren Holm\n' > registers/1921_births.reg
printf 'fee 5 \xa3, paid\n' > registers/1888_fees.reg
