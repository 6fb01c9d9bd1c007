#!/bin/sh
# Installs leash for the current user. It needs no root, and changes nothing outside of the prefix.
#
#   curl -fsSL https://github.com/mcp-leash/leash/releases/latest/download/install.sh | sh
#
set -eu

usage() {
    cat <<'END'
usage: install.sh [--from DIR] [--prefix DIR] [--uninstall]
  --from DIR     take the files from this directory instead of from the latest release
  --prefix DIR   install below this directory [default: ~/.local]
  --uninstall    remove what an earlier run installed below the prefix
END
}

releases=https://github.com/mcp-leash/leash/releases/latest/download
from=
prefix=
action=install
young=
made=

say() { printf '%s\n' "$*"; }

fail() {
    printf 'error: %s\n' "$1" >&2
    shift
    for hint in "$@"; do printf '\nhint: %s\n' "$hint" >&2; done
    exit 1
}

# Removes the temporary files. After a failure, also the directories that were made and are empty.
tidy() {
    code=$?
    [ -z "$young" ] || rm -rf "$young"
    if [ "$code" -ne 0 ]; then remove_dirs "$made"; fi
    exit "$code"
}

# Removes the directories of a list, one a line, deepest first. One in which another program has files stays.
remove_dirs() {
    printf '%s\n' "$1" | while IFS= read -r dir; do
        if [ -n "$dir" ]; then rmdir "$dir" 2>/dev/null || true; fi
    done
}

main() {
    while [ $# -gt 0 ]; do
        case $1 in
            --from | --prefix)
                [ $# -ge 2 ] || fail "$1 needs a directory"
                if [ "$1" = --from ]; then from=$2; else prefix=$2; fi
                shift
                ;;
            --uninstall) action=uninstall ;;
            -h | --help) usage; exit 0 ;;
            *) usage >&2; exit 2 ;;
        esac
        shift
    done
    if [ -z "$prefix" ]; then
        [ -n "${HOME:-}" ] || fail 'HOME is not set' 'give --prefix DIR'
        prefix=$HOME/.local
    fi
    # The list of installed files has absolute paths.
    case $prefix in /*) ;; *) prefix=$PWD/$prefix ;; esac
    list=$prefix/share/leash/installed
    trap tidy EXIT
    trap 'exit 130' HUP INT TERM
    "$action"
}

# Prints the target whose files fit this machine.
target() {
    system=$(uname -s) machine=$(uname -m)
    case $system in
        Linux) ;;
        *) fail "leash runs on Linux; this is $system" ;;
    esac
    case $machine in
        x86_64 | amd64) say x86_64-unknown-linux-musl ;;
        aarch64 | arm64) say aarch64-unknown-linux-musl ;;
        *) fail "there is no leash for the processor $machine" 'build it: cargo install mcp-leash' ;;
    esac
}

# Copies the file $1 of the release to $2.
get() {
    if [ -n "$from" ]; then
        cp "$from/$1" "$2" || fail "cannot read $from/$1"
    elif command -v curl >/dev/null; then
        curl -fsSL --proto '=https' --tlsv1.2 -o "$2" "$releases/$1" || fail "cannot get $releases/$1"
    elif command -v wget >/dev/null; then
        wget -q -O "$2" "$releases/$1" || fail "cannot get $releases/$1"
    else
        fail 'neither curl nor wget is here' 'get the release in another way, and give its directory: --from DIR'
    fi
}

# Prints the SHA-256 sum of a file.
sum() {
    if command -v sha256sum >/dev/null; then
        sha256sum "$1"
    elif command -v shasum >/dev/null; then
        shasum -a 256 "$1"
    else
        fail 'neither sha256sum nor shasum is here, so the download cannot be checked'
    fi | cut -d ' ' -f 1
}

# Makes a directory, and notes every new one in the list.
make_dir() {
    [ ! -d "$1" ] || return 0
    make_dir "$(dirname "$1")"
    mkdir "$1" || fail "cannot make the directory $1" 'choose another one with --prefix DIR'
    made="$1
$made"
}

install() {
    target=$(target)
    make_dir "$prefix/bin"
    make_dir "$prefix/share/leash"
    # On the file system of the prefix, so that a file can be renamed to its place.
    young=$(mktemp -d "$prefix/share/leash/young.XXXXXX") || fail "cannot write to $prefix"
    get SHA256SUMS "$young/SHA256SUMS"
    line=$(grep -- "-$target.tar.gz\$" "$young/SHA256SUMS" | head -n 1) || true
    [ -n "$line" ] || fail "the release has no leash for $target"
    archive=${line##* }
    get "$archive" "$young/$archive"
    found=$(sum "$young/$archive")
    [ "$found" = "${line%% *}" ] ||
        fail "$archive is not the file of the release: its SHA-256 sum is $found, expected ${line%% *}" 'try again'
    mkdir "$young/files"
    tar -xzf "$young/$archive" -C "$young/files" || fail "cannot unpack $archive"
    root=$young/files/${archive%.tar.gz}
    "$root/bin/leash" --version >/dev/null || fail "$archive does not run on this machine"

    (cd "$root" && find . -type f) | sed 's|^\./||' | sort >"$young/new"
    while IFS= read -r file; do
        make_dir "$(dirname "$prefix/$file")"
        # A running leash keeps its old file: the name gets another one.
        mv -f "$root/$file" "$prefix/$file" || fail "cannot write $prefix/$file"
    done <"$young/new"
    note
    say "installed $("$prefix/bin/leash" --version) to $prefix/bin/leash"
    tell_path
}

# Writes the list of installed files and of the directories that were made for them, deepest first. Files of an earlier
# version that are no more are removed.
note() {
    if [ -f "$list" ]; then
        sed -n 's|^dir ||p' "$list" >"$young/dirs"
        sed -n "s|^file $prefix/||p" "$list" | while IFS= read -r old; do
            grep -Fqx -- "$old" "$young/new" || rm -f "$prefix/$old"
        done
    else
        : >"$young/dirs"
    fi
    {
        while IFS= read -r file; do say "file $prefix/$file"; done <"$young/new"
        { printf '%s' "$made"; cat "$young/dirs"; } | while IFS= read -r dir; do say "dir $dir"; done
    } >"$young/installed"
    mv -f "$young/installed" "$list" || fail "cannot write $list"
}

tell_path() {
    case ":$PATH:" in
        *":$prefix/bin:"*) ;;
        *)
            say "$prefix/bin is not in PATH. Add this line to the file that your shell reads at its start"
            say '(~/.bashrc, ~/.zshrc, ~/.profile), and open a new terminal:'
            say "    export PATH=\"$prefix/bin:\$PATH\""
            ;;
    esac
    say 'next: leash demo'
}

uninstall() {
    [ -f "$list" ] || fail "this script installed nothing below $prefix" 'give --prefix DIR, if it was another one'
    # The servers of a client that names leash in its configuration would not start any more.
    adopted=$("$prefix/bin/leash" release --json --diff </dev/null 2>/dev/null) || adopted=
    case $adopted in
        '' | *'"files": []'*) ;;
        *) fail 'clients still start their servers through leash' "run \`$prefix/bin/leash release\`, then this again" ;;
    esac
    sed -n 's|^file ||p' "$list" | while IFS= read -r file; do rm -f "$file"; done
    dirs=$(sed -n 's|^dir ||p' "$list")
    rm -f "$list"
    remove_dirs "$dirs"
    say "removed leash from $prefix"
}

main "$@"
