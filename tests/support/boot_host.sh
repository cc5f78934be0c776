#!/bin/sh
# Becomes process 1 of a virtual host: builds a root file system on DISK, enters it, ends as its sshd.
# In: DISK (a folder that lasts over power cuts), NAME, and "ro PATH" or "rw PATH" lines on stdin: what else of this
# machine the host sees. Runs in new network, pid, mount, hostname and ipc namespaces.
set -eu
mount --make-rprivate /
mount --bind "$DISK" "$DISK"
cd "$DISK"

# programs: this machine's, changeable without changing this machine
mount -t tmpfs -o mode=755 tmpfs mnt
mkdir mnt/upper mnt/work
mount -t overlay -o lowerdir=/usr,upperdir=mnt/upper,workdir=mnt/work overlay usr
umount --lazy mnt

mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=755 tmpfs run
mkdir run/sshd
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mknod -m 666 dev/null c 1 3
mknod -m 666 dev/zero c 1 5
mknod -m 666 dev/full c 1 7
mknod -m 666 dev/random c 1 8
mknod -m 666 dev/urandom c 1 9
mknod -m 666 dev/tty c 5 0
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s /proc/self/fd/0 dev/stdin
ln -s /proc/self/fd/1 dev/stdout
ln -s /proc/self/fd/2 dev/stderr

# what else of this machine the host sees, may it lie below /tmp
while read -r access path; do
    if [ -d "$path" ]; then mkdir -p ".$path"; else mkdir -p ".${path%/*}" && : >".$path"; fi
    mount --bind "$path" ".$path"
    [ "$access" = rw ] || mount -o remount,bind,ro ".$path"
done

hostname "$NAME"
ip link set lo up
mkdir -p .outside
pivot_root . .outside
umount --lazy /.outside
cd /
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /usr/sbin/sshd -D -e </dev/null
