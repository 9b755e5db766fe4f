#!/bin/bash
# shelve.sh FOLDER: move its .txt files into FOLDER/shelf, print how many
cd $1
mkdir -p shelf
count=0
for name in `ls *.txt || echo none`; do
  mv $name shelf/ 2> /dev/null
  count=$((count + 1))
done
echo $count
