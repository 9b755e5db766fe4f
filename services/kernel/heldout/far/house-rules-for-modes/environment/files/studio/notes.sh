just notes about shells
