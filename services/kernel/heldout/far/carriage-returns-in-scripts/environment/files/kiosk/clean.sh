#!/bin/bash
echo clean already
