"""Leaving the box: connections, writing to files, more privileges, other namespaces."""

from tests.attack_fixtures.attack import escaping, shared

NETWORK = {
    "TCP": escaping("""
# A connection to the grader's machine.
import socket
tried('TCP', lambda: socket.create_connection(('127.0.0.1', PLACES['tcp']), 1))
import urllib.request
tried('http', lambda: urllib.request.urlopen(f'http://127.0.0.1:{PLACES["tcp"]}/', timeout=1))
"""),
    "Unix sockets": escaping("""
# Sockets of the machine, by path and abstract.
import socket
for name in (PLACES['unix'], '\\0' + PLACES['abstract'], '/run/docker.sock', '/run/dbus/system_bus_socket'):
    tried('unix', lambda: socket.socket(socket.AF_UNIX).connect(name))
"""),
    "a pair of sockets": shared("""
# The only sockets that can be had, turned to another address.
import socket
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
for name in (PLACES['unix'], '\\0' + PLACES['abstract']):
    tried('sendto', lambda: a.sendto(b'x', name))
    tried('connect', lambda: b.connect(name))
a.close(); b.close()
"""),
    "other families": shared("""
# Sockets of other kinds: raw, netlink, packets, Bluetooth, virtual machines.
import socket
for family, kind in ((2, 3), (16, 3), (17, 3), (31, 5), (40, 1), (38, 5), (10, 1), (1, 1)):
    tried(str(family), lambda: socket.socket(family, kind))
for family in (2, 10, 16, 30, 40):  # of a pair, the kernel would make one before it refuses the other
    try: socket.socketpair(family)
    except PermissionError: pass
    except OSError as error: print('broke out: the kernel was asked for', family, error)
"""),
    "the tests' socket": shared("""
# An open file sent along with an answer.
import array, socket
file = os.open('/dev/null', os.O_RDONLY)
with socket.socket(fileno=os.dup(line().fileno())) as copy:
    tried('getpeername', lambda: copy.getpeername() or 1 / 0)
rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [file]))]
tried('SCM_RIGHTS', lambda: line().sendmsg([], rights) or 1 / 0)
os.close(file)
"""),
    "programs": escaping("""
# Programs that connect.
for command in (
    'curl -m 1 http://127.0.0.1:{tcp}',
    'wget --tries=1 -T 1 -O- http://127.0.0.1:{tcp}',
    'echo x > /dev/tcp/127.0.0.1/{tcp}',
    'perl -e \\'use IO::Socket; IO::Socket::INET->new("127.0.0.1:{tcp}") or exit 1\\'',
):
    done = subprocess.run(['bash', '-c', command.format(**PLACES)], capture_output=True)
    print(done.returncode or 'broke out')
"""),
}

WRITING = {
    "writing the gradebook": escaping("""
# Writing to files that anybody may write.
for name in ("gradebook", "other", "master", "config"):
    tried("writing", lambda: open(PLACES[name], "ab").write(b"attack-mark"))
    tried("removing", lambda: os.remove(PLACES[name]))
    tried("owner", lambda: os.chmod(PLACES[name], 0o777))
"""),
    "new files": shared("""
# Files in every folder.
known = [PLACES['folder'], PLACES['repository'], PLACES['home'], sys.prefix]
own = os.stat('.').st_dev  # if Python lies below /tmp, the box's own /tmp has folders that lead to it
def new_file():
    with open(os.path.join(name, 'attack-mark-new'), 'w') as file:
        if os.fstat(file.fileno()).st_dev == own: raise OSError('in its own memory')
for name in ('/', '/tmp/../', '/etc', '/usr/lib', '/home', '/dev', '/var/tmp', '/usr/local/bin', *known):
    tried(name, new_file)
"""),
    "site-packages": shared("""
# Code that Python runs at every start.
import site, transformer_lessons
folders = [os.path.dirname(module.__file__) for module in (transformer_lessons, os, torch)]
for name in (*site.getsitepackages(), sys.prefix + '/bin', *folders):
    tried(name, lambda: open(name + '/attack-mark.pth', 'w').write('import os'))
    tried(name, lambda: open(name + '/__init__.py', 'a').write('#'))
"""),
    "read-only taken back": shared("""
# The file system mounted again, so that it can be written to.
tried('remount', lambda: called('mount', b'none', b'/', None, 32, None))
tried('mount', lambda: called('mount', b'none', b'/home/student', b'tmpfs', 0, None))
tried('umount', lambda: called('umount2', b'/home/student', 2))
tried('open_tree', lambda: syscall('open_tree', -100, b'/', 1))
tried('fsopen', lambda: syscall('fsopen', b'tmpfs', 0))
tried('proc', lambda: called('mount', b'proc', b'/home/student', b'proc', 0, None))
"""),
    "locks": shared("""
# Locks on files that others need.
import fcntl
for name in (PLACES['gradebook'], PLACES['config']):
    tried(name, lambda: fcntl.flock(open(name), fcntl.LOCK_EX))
"""),
}

RIGHTS = {
    "root": shared("""
# Another user.
for number in (0, 65533, 1001):
    tried(f'user {number}', lambda: os.setresuid(number, number, number))
    tried(f'group {number}', lambda: os.setresgid(number, number, number))
tried('groups', lambda: os.setgroups([0]))
"""),
    "set-user-ID": shared("""
# Programs that run as root.
import glob
for name in ('/usr/bin/su', '/usr/bin/sudo', '/usr/bin/mount', '/usr/bin/passwd', '/usr/bin/newgrp', '/bin/ping'):
    command = [name, '-h'] if os.path.exists(name) else ['false']
    subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL)
command = 'cp /usr/bin/id attack-mark-id; chmod 4755 attack-mark-id; ./attack-mark-id -u'
done = subprocess.run(command, shell=True, capture_output=True, text=True)
print(done.stdout, done.stderr)
print('broke out' if done.stdout.strip() == '0' else '')
"""),
    "capabilities": shared("""
# Rights of root, one by one.
tried('settime', lambda: time.clock_settime(time.CLOCK_REALTIME, 0))
tried('hostname', lambda: called('sethostname', b'attack-mark', 11))
tried('reboot', lambda: called('reboot', 0))
tried('swapon', lambda: called('swapon', b'/home/student', 0))
tried('acct', lambda: called('acct', None))
tried('chown', lambda: os.chown('/home/student', 0, 0))
tried('capset', lambda: called('capset', b'\\x22\\x05\\x08\\x20' + bytes(4), bytes([255] * 24)))
"""),
    "devices": shared("""
# Devices of one's own.
import stat
for device in (os.makedev(1, 1), os.makedev(1, 11), os.makedev(8, 0), os.makedev(254, 0)):
    tried('mknod', lambda: os.mknod(f'attack-mark-device', 0o600 | stat.S_IFCHR, device))
    tried('mknod', lambda: os.mknod(f'attack-mark-device', 0o600 | stat.S_IFBLK, device))
"""),
    "namespaces": shared("""
# Namespaces of one's own, in which one is root.
for flag in (0x10000000, 0x20000, 0x40000000, 0x20000000, 0x08000000, 0x10020000):
    tried('unshare', lambda: called('unshare', flag))
    tried('clone', lambda: syscall('clone', flag | 17, 0, 0, 0, 0) and None)
tried('clone3', lambda: syscall('clone3', (ctypes.c_uint64 * 11)(0x10000000, 0, 0, 0, 17), 88))
done = subprocess.run(['unshare', '-Urmpf', 'id', '-u'], capture_output=True, text=True)
print(done.stderr, 'broke out' if done.stdout.strip() == '0' else '')
"""),
    "kernel": shared(
        """
# The kernel's own doors: to other processes' memory, to memory that no limit counts, past the filters.
for name, arguments in (
    ('bpf', (0, bytes(64), 64)), ('userfaultfd', (0,)), ('personality', (0x0040000,)), ('quotactl', (0, 0, 0, 0)),
    ('init_module', (b'x', 1, b'')), ('finit_module', (0, b'', 0)), ('delete_module', (b'x', 0)),
    ('kexec_load', (0, 0, 0, 0)), ('io_uring_setup', (8, ctypes.create_string_buffer(120))),
    ('io_uring_enter', (0, 0, 0, 0, 0, 0)), ('io_uring_register', (0, 0, 0, 0)), ('socket', (2, 1, 0)),
    ('pivot_root', (b'.', b'.')), ('move_mount', (0, b'', 0, b'', 0)), ('mount_setattr', (0, b'', 0, 0, 0)),
    ('setns', (os.pidfd_open(1), 0)), ('kcmp', (1, PLACES['pid'], 0, 0, 0)), ('keyctl', (0, -3, 1)),
    ('add_key', (b'user', b'a', b'b', 1, -3)), ('request_key', (b'user', b'a', None, -3)),
    ('ptrace', (16, PLACES['pid'], 0, 0)), ('ptrace', (16, 1, 0, 0)), ('pidfd_getfd', (os.pidfd_open(1), 0, 0)),
    ('process_vm_readv', (PLACES['pid'], bytes(16), 1, bytes(16), 1, 0)),
    ('process_vm_writev', (1, bytes(16), 1, bytes(16), 1, 0)), ('perf_event_open', (bytes(128), -1, 0, -1, 0)),
    ('memfd_create', (b'a', 0)), ('shmget', (0, 100 << 20, 0o600)), ('msgget', (0, 0o600)),
    ('semget', (0, 1, 0o600)), ('syslog', (3, bytes(100), 100)), ('open_tree_attr', (-100, b'/', 0, None, 0)),
):
    tried(name, lambda: syscall(name, *arguments))
print('all doors tried')
""",
        shows="all doors tried",
    ),
    "other numbers": shared("""
# System calls by their other numbers.
import platform
if platform.machine() == 'x86_64':
    for number in (101, 165, 272, 41, 248):
        tried(str(number), lambda: called('syscall', 0x40000000 + number, 0, 0, 0, 0, 0))
"""),
    "filters": shared("""
# A filter of one's own that allows everything.
import struct
code = ctypes.create_string_buffer(struct.pack('<HBBI', 6, 0, 0, 0x7FFF0000))
program = struct.pack('<HxxxxxxQ', 1, ctypes.addressof(code))
called('prctl', 22, 2, program, 0, 0)
tried('unshare', lambda: called('unshare', 0x10000000))
tried('new privileges', lambda: called('prctl', 38, 0, 0, 0, 0))
"""),
    "a terminal": shared("""
# Characters typed into the grader's terminal.
import fcntl, termios
for number in (0, 1, 2):
    tried('TIOCSTI', lambda: fcntl.ioctl(number, termios.TIOCSTI, b'x'))
tried('tty', lambda: open('/dev/tty', 'w').write('x'))
tried('pty', lambda: os.openpty())
"""),
    "machine code": shared("""
# Code of its own making.
import mmap
with mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 7) as code:
    code.write(b'\\xc3' if os.uname().machine == 'x86_64' else bytes.fromhex('c0035fd6'))
program = open('attack-mark-program', 'w')
program.write('#!/bin/sh\\necho broke out'); program.close()
os.chmod('attack-mark-program', 0o755)
tried('a program', lambda: subprocess.check_output(['./attack-mark-program']))
"""),
}

ATTACKS = NETWORK | WRITING | RIGHTS
