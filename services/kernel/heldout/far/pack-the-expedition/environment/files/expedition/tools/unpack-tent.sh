#!/bin/bash
echo tent
