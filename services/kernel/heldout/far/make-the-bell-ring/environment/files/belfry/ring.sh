#!/bin/bash
strokes=$(wc -l < rota.txt)
echo "rang $strokes times" > rung.txt
