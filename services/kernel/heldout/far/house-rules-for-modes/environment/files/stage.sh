#!/bin/bash
set -euo pipefail
cd /app
chmod 777 studio studio/takes && chmod 700 studio/public && chmod 775 studio/public/art
chmod 666 studio/takes/take-09.wav && chmod 600 studio/public/player.html && chmod 755 studio/public/art/cover.txt studio/notes.sh
chmod 644 studio/mixdown && chmod 600 studio/takes/rename.sh
