#!/bin/sh
# Puts what a program needs at run time beside it: its libraries, the loader, and the records of their Debian packages, where
# scanners for vulnerabilities look (/var/lib/dpkg/status.d).
# Usage: collect-libraries.sh ROOT PROGRAM       PROGRAM as a path below ROOT
set -eu
root=$1 program=$1$2

# "libx.so.1 => /lib/.../libx.so.1 (0x...)", and the loader alone as "/lib64/ld-linux... (0x...)".
files=$(ldd "$program" | awk '$2 == "=>" { print $3 } $1 ~ /^\// { print $1 }')
case $files in *not*) ldd "$program" >&2; exit 1 ;; esac
# With a name server in resolv.conf and a name in hosts, libc needs no further file.
install -d "$root/var/lib/dpkg/status.d" "$root/etc" "$root/usr/share/doc"
printf 'hosts: files dns\n' >"$root/etc/nsswitch.conf"
printf 'router:x:65532:65532:router:/:/nonexistent\n' >"$root/etc/passwd"
for file in $files; do
    cp -L --parents "$file" "$root"
    # Debian 12 has /lib as a link to /usr/lib, and packages that own the file under either name.
    package=$( (dpkg -S "$(realpath "$file")" || dpkg -S "$file" || dpkg -S "/lib${file#/usr/lib}" || dpkg -S "/usr$file") 2>/dev/null |
        head -n 1 | cut -d: -f1)
    [ -n "$package" ] || { echo "$0: no package owns $file" >&2; exit 1; }
    name=$(dpkg-query -W -f '${Package}' "$package")
    dpkg-query -s "$package" >"$root/var/lib/dpkg/status.d/$name"
    install -D -m 0644 "/usr/share/doc/$name/copyright" "$root/usr/share/doc/$name/copyright" 2>/dev/null || true
done

# Nothing is missing: it starts with what is there. A file stands in for the device that it opens first.
mkdir "$root/dev"
: >"$root/dev/null"
chroot "$root" "$2" --version
rm -r "$root/dev"
