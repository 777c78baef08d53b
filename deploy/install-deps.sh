#!/bin/sh
# Installs the Debian or Ubuntu packages that are missing; does nothing when all are there.
# Usage: install-deps.sh build|demo|test|image [clang]
set -eu

# "a|b": either will do; the first that exists is installed.
packages='gcc libc6-dev make pkgconf|pkg-config libevent-dev libssl-dev libcurl4-openssl-dev|libcurl4-gnutls-dev libcjson-dev libinih-dev
    libyaml-dev libmimalloc-dev libllhttp-dev|node-llhttp'
case "${1:-build}" in
build) ;;
demo) packages="$packages python3" ;;
test) packages="$packages python3 libcmocka-dev python3-pytest python3-yaml curl openssl clang-format-14|clang-format apache2-utils wrk valgrind strace kubernetes-client|kubectl" ;;
image) packages="$packages python3 openssl buildah podman runc debootstrap uidmap fuse-overlayfs" ;;
*) echo "usage: $0 build|demo|test|image [clang]" >&2; exit 2 ;;
esac
case "${2:-}" in
clang*) packages="$packages clang libclang-rt-dev|libclang-rt-14-dev" ;;
esac

if ! command -v dpkg-query >/dev/null; then
    echo "note: not Debian or Ubuntu, so packages are not looked after; needed are:" $packages >&2
    exit 0
fi

# The names of an entry, one a word, without starting a process.
names_of()
{
    old_ifs=$IFS
    IFS='|'
    set -- $1
    IFS=$old_ifs
    names="$*"
}

names_of "$(echo $packages | tr ' ' '|')"
installed=" $(dpkg-query -W -f '${db:Status-Status}:${Package} ' $names 2>/dev/null || true)"
missing=
for entry in $packages; do
    found=
    names_of "$entry"
    for name in $names; do
        case "$installed" in *" installed:$name "*) found=yes ;; esac
    done
    [ -n "$found" ] || missing="$missing $entry"
done
[ -n "$missing" ] || exit 0

sudo=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "missing packages, and neither root nor sudo to install them:$missing" >&2; exit 1; }
    sudo=sudo
fi
echo "installing:$missing" >&2
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -q >&2
picked=
for entry in $missing; do
    pick=
    names_of "$entry"
    for name in $names; do
        if [ -z "$pick" ] && [ -n "$(apt-cache madison "$name")" ]; then pick=$name; fi
    done
    # Older releases ship the sanitizers' runtime with clang itself.
    case "$entry" in libclang-rt*) [ -n "$pick" ] || continue ;; esac
    [ -n "$pick" ] || { echo "no package $entry in the configured archives" >&2; exit 1; }
    picked="$picked $pick"
done
$sudo apt-get install -q -y --no-install-recommends $picked >&2
