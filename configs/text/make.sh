#!/bin/sh
# Makes moetune.txt.gz beside it, a text to train on: this repository's own pages and C++ sources in the order of their
# paths, a line with the path before each, cut to 1.2 MB of whole lines. The file is a snapshot: later sources do not
# change it, so losses stay comparable.
set -eu
export LC_ALL=C
cd "$(dirname "$0")/../.."
out=configs/text/moetune.txt.gz
most=1200000
{ git ls-files README.md 'docs/*.md'; git ls-files '*.cpp' '*.h' | sort; } | while read -r file; do
  printf '==== %s\n' "$file"
  cat "$file"
done | head -c $most | sed '$d' | gzip -9n > $out.part
mv $out.part $out
wc -c $out
