#!/bin/bash
set -euo pipefail
cd /app
python3 - <<'PY'
import sqlite3
db = sqlite3.connect("library.db")
db.executescript('''
CREATE TABLE readers (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE loans (book TEXT, reader INTEGER, lent TEXT, returned TEXT);
INSERT INTO readers VALUES (1,'Signe'),(2,'Bertil'),(3,'Fatou'),(4,'Walt');
INSERT INTO loans VALUES
 ('Tides','1','2029-01-04','2029-02-01'),('Knots',2,'2029-01-10',NULL),('Sails',3,'2029-02-11',NULL),
 ('Stars',3,'2029-01-02',NULL),('Reefs',1,'2029-03-05',NULL),('Winds',3,'2028-11-20','2028-12-20'),('Birds',2,'2028-12-01','2029-01-09');
''')
db.commit()
PY
