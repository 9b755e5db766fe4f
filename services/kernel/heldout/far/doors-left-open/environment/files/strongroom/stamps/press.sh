stamps/press.sh
