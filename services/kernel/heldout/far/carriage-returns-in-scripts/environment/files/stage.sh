#!/bin/bash
set -euo pipefail
cd /app
mkdir -p kiosk/boot/extra
printf '#!/bin/bash\r\necho starting kiosk\r\n' > kiosk/start.sh
printf 'screen=7\r\ncolour=teal\r\n' > kiosk/boot/screen.conf
printf '#!/bin/bash\nprintf "one"\necho two\r\n' > kiosk/boot/extra/mixed.sh
printf '@echo off\r\nstart kiosk.exe\r\n' > kiosk/start.bat
printf 'volume=3\n' > kiosk/boot/sound.conf
