#!/bin/bash
set -euo pipefail
cd /app
printf 'Fjara i M\xc3\xa5neskin\nCaf\xc3\xa9 No. 7\nCafe\xcc\x81 No. 7 (Reprise)\n  Stra\xc3\x9fe & S\xc3\xb8rens Vals!\nNi\xc3\xb1o\xe2\x80\x94Se\xc3\xb1or\nUBER u\xcc\x88ber\n' > songs.txt
printf 'not a song list\n' > songs.bak
