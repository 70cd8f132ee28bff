#!/usr/bin/env bash
# A wing is a feature that can be taken out: its folders, the files whose first line has "wing: NAME", and the lines that
# end with it elsewhere. This shows that the rest builds and works without a wing.
#
#   integration/wings.sh list NAME     prints the wiring: what is deleted with the wing
#   integration/wings.sh NAME...       deletes it in a copy of the tree, builds all modules there, and runs
#                                      the short tests of the heart
set -euo pipefail
cd "$(dirname "$0")/.."

# folders prints the folders of a wing.
folders() {
	case $1 in
	follow) echo follow internal/follow integration/follow integration/consume examples/outbox ;;
	publicid) echo publicid examples/node ;;
	inspector) echo inspector integration/page ;;
	segment) echo segment internal/segments integration/segment ;;
	partitions) echo internal/partition integration/partitions ;;
	*) echo "wings.sh: $1 is not a wing that can be taken out; add its folders here" >&2 && return 1 ;;
	esac
}

# heart are the packages whose tests must pass without any wing. Those below them import nothing that could be a wing's.
# The first ones wait most of their time, so the others run meanwhile.
heart=(./internal/supply ./internal/fill . ./internal/catalog ./internal/config ./internal/core ./internal/lookup ./internal/model ./internal/upsert)

# These compare the tree with texts about all wings: testdata, documents, the log's page, and the wiring of the heart.
about='TestAPI|TestStructure_(Documents|TheHeart)'

# marked prints the files below the current folder that have the mark of a wing, with all its folders left out.
marked() {
	local pattern="wing: $1( \*/}})?\$" outside=()
	for folder in $(folders "$1"); do
		outside+=(":!$folder")
	done
	git ls-files -z -- "${outside[@]}" ':!integration/wings.sh' | xargs -0 grep -lE "$pattern" -- || [ $? = 123 ]
}

# whole reports whether a file belongs to a wing from its first line on.
whole() { head -n 1 "$2" | grep -qE "^(// |\{\{/\* )wing: $1( \*/\}\})?"; }

list() {
	folders "$1" | tr ' ' '\n' | sed 's|$|/|'
	for file in $(marked "$1"); do
		if whole "$1" "$file"; then
			echo "$file"
		else
			grep -nE "wing: $1( \*/}})?\$" "$file" | sed "s|^\([0-9]*\):[[:space:]]*|$file:\1: |"
		fi
	done
}

take_out() {
	local name=$1 files
	files=$(marked "$name")
	# shellcheck disable=SC2046
	rm -r $(folders "$name")
	for file in $files; do
		if whole "$name" "$file"; then
			rm "$file"
		else
			sed -i -E "/wing: $name( \*\/\}\})?\$/d" "$file"
		fi
	done
}

if [ $# -lt 1 ]; then
	sed -n '5,9s/^# \{0,1\}//p' "$0" >&2
	exit 2
fi
if [ "$1" = list ]; then
	list "$2"
	exit
fi
for name in "$@"; do
	folders "$name" >/dev/null
done
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
for name in "$@"; do
	rm -rf "$copy/tree"
	mkdir "$copy/tree"
	git ls-files -z | xargs -0 cp --parents -t "$copy/tree"
	(
		cd "$copy/tree"
		git init -q .
		git add -A
		take_out "$name"
		go list -export work >/dev/null # compiles everything, and links nothing
		go test -vet=off -short -skip "$about" "${heart[@]}"
	)
	echo "wings.sh: everything builds without $name, and the tests of the heart pass"
done
