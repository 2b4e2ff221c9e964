#!/bin/bash
# dist.sh VERSION FILE: the sources of the last commit and of all crates that they need, as an archive that builds
# without a network. The same commit gives the same bytes.
set -euo pipefail

version=$1 file=$(realpath -m "$2")
cd "$(dirname "$0")/../.."
git rev-parse --git-dir > /dev/null 2>&1 || { echo "make dist: this is no clone: the archive is made of a commit" >&2; exit 1; }
[ -z "$(git status --porcelain)" ] || echo "make dist: what is not committed is not in the archive" >&2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/han-$version
git archive --prefix="han-$version/" HEAD | tar -x -C "$work"
mkdir -p "$tree/.cargo" "$(dirname "$file")"
(cd "$tree" && ${CARGO:-cargo} vendor --quiet --locked vendor > .cargo/config.toml)
# Import libraries of Windows: most of the bytes, and nothing here is linked with them.
find "$tree/vendor" -path '*windows-gnu*' -name '*.a' -delete

tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct)" \
    -cJf "$file.new" "han-$version"
mv "$file.new" "$file"
echo "$file: $(du -h "$file" | cut -f1)"
