#!/bin/bash
set -euo pipefail
cd /app
python3 - <<'PY'
import xml.etree.ElementTree as ET
tree = ET.parse("greenhouse.xml")
total = 0.0
for plant in tree.iter("plant"):
    price = plant.find("price")
    if plant.get("kind") == "fern":
        price.text = f"{float(price.text) * 1.1:.2f}"
    total += float(price.text) * int(plant.find("stock").text)
tree.write("greenhouse_new.xml", encoding="UTF-8", xml_declaration=True)
open("stock_value.txt", "w").write(f"{total:.2f}\n")
PY
