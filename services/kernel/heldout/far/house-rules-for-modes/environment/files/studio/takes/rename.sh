#!/bin/bash
echo renaming
