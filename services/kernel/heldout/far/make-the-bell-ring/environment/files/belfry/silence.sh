#!/bin/bash
rm -f rung.txt
