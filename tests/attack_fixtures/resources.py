"""Using up memory, disk, processes and files, and flooding the output."""

from tests.attack_fixtures.attack import Attack, cell, forged, shared

# The test sets a limit of 256 MiB; an attack that gets more has broken out.
MEMORY = {
    "bytes": shared("tried('8 GB', lambda: bytearray(8 << 30)[-1])"),
    "shared memory": shared("""
# Memory that the process does not own: shared, without a name.
import mmap
def take(file, size=400 << 20):
    kept = mmap.mmap(file, size)
    for at in range(0, size, 1 << 22): kept[at : at + (1 << 22)] = bytes(1 << 22)
    return len(kept)
tried("400 MB of shared memory", lambda: take(-1))
"""),
    "many processes' memory": cell(
        """
# The limit of memory once in each of many processes.
def take(number=3):
    read, write = os.pipe()
    for _ in range(number):
        if not os.fork():
            try: kept = b"x" * (150 << 20)
            except BaseException: os._exit(1)
            os.write(write, b".")
            time.sleep(5)
            os._exit(0)
    os.close(write)
    while number: number -= len(os.read(read, 1)) or 1 / 0
    time.sleep(0.7)
    return "3 times 150 MB at once"
tried("450 MB in three processes", take)
""",
        shows="attack ran|This cell was ended",
    ),
}

DISK = {
    "a full disk": shared("""
# All the space there is.
def fill():
    with open("attack-mark-large", "wb") as file:
        for _ in range(1000): file.write(bytes(1 << 20))
tried("1 GB on disk", fill)
os.path.exists("attack-mark-large") and os.remove("attack-mark-large")
"""),
    "many files": shared("""
# So many files that no other can be made.
def fill():
    for n in range(100_000): open(f"attack-mark-{n}", "w").close()
tried("100,000 files", fill)
for name in os.listdir("."):
    if name.startswith("attack-mark-"): os.remove(name)
"""),
    "a deep folder": shared("""
# Folders within folders, too deep to be removed.
for n in range(300):
    os.mkdir('attack-mark-deep'); os.chdir('attack-mark-deep')
os.chdir('/home/student')
"""),
    "/dev/shm": shared(
        "tried('1 GB', lambda: open('/dev/shm/attack-mark', 'wb').write(bytes(1 << 27)) and 1 / 0)"
    ),
    "open files": shared("""
# A thousand open files.
files = []
tried("1000 files", lambda: [files.append(os.open("/dev/null", os.O_RDONLY)) for _ in range(1000)])
for file in files: os.close(file)
"""),
}

PROCESSES = {
    "fork bomb": cell(
        """
# Processes that start processes.
def bomb():
    for _ in range(300):
        if os.fork() == 0:
            try:
                while True: os.fork()
            except BaseException: time.sleep(1000)
tried("300 processes", bomb)
os.kill(-1, signal.SIGKILL)
while True:
    try: os.waitpid(-1, 0)
    except ChildProcessError: break
""",
        shows="attack ran|This cell was ended",
    ),
    "thread bomb": shared("""
# A thousand threads.
stop = threading.Event()
def bomb():
    for _ in range(1000): threading.Thread(target=stop.wait, daemon=True).start()
tried("1000 threads", bomb)
stop.set()
"""),
    "sessions": shared("""
# Sessions for many processes, each of which the scheduler would give as much as another student's box.
pid = os.fork()
if not pid:
    try: os.setsid()
    except OSError: os._exit(0)
    os._exit(1)
if os.waitpid(pid, 0)[1]: print('broke out: a session of its own')
"""),
    "limits": shared("""
# The limits raised.
import resource
for name in ('DATA', 'NPROC', 'FSIZE', 'NOFILE', 'CPU'):
    tried(name, lambda: resource.setrlimit(getattr(resource, 'RLIMIT_' + name), (-1, -1)))
"""),
    "priority": shared("""
# A higher priority.
tried('nice', lambda: os.nice(-10))
tried('real time', lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99)))
"""),
}

# Their own output may be cut, so the last cell reports that they ran.
OUTPUT = {
    name: shared(f"RAN.append('{name} ran')\n{code}", shows=f"{name} ran")
    for name, code in {
        "a flood": "print('x' * 10**8)",
        "both streams": "for n in range(20_000): print(n, file=(sys.stdout, sys.stderr)[n % 2])",
        "displays": "for n in range(1000): display({'n': n})",
        "metadata": "display('x', metadata={'a': 'x' * 10**7})",
        "kinds": """
# Ten thousand kinds of one thing.
from IPython.display import display as show
show({f'text/{n}': 'x' * 1000 for n in range(10_000)}, raw=True)
""",
        "an error": """
# An error with a message of megabytes.
raise_ = lambda: (_ for _ in ()).throw(RuntimeError('x' * 10**7))
try: raise_()
except RuntimeError: get_ipython().showtraceback()
""",
        "not JSON": """
# Outputs that JSON has no words for.
odd = {'output_type': 'stream', 'name': 'stdout', 'text': float('nan'), 'more': {1: {2, 3}}}
get_ipython().outputs.append(odd)
""",
        "a circle": """
# Outputs that hold themselves.
o = {'output_type': 'stream'}; o['o'] = o
get_ipython().outputs.append(o)
""",
    }.items()
}

# Attacks on the tests' process. A test as in another assignment, about vectors that the learner chooses.
PAIRS = """
def looked_at(length):
    try:
        q, k = (torch.as_tensor(x).detach().double() for x in row_entropy(torch.eye(length)))
        w = (q @ k.T / math.sqrt(q.size(-1))).softmax(-1)
        return w.shape == (length, length) and bool(w[0, 0] >= 0.99)
    except Exception:
        return False


seen = [looked_at(length) for length in (2, 3, 7, 20, 50)]
1.0 * all(seen)
"""
OF_THE_TESTS = {
    # So many vectors that all pairs of them take gigabytes.
    "a long answer": Attack(
        answers={
            "ps01-6-answer": """
def row_entropy(weights):
    RAN[:] = ['attack ran']
    return (torch.zeros(11_000, 1),) * 2 if len(weights) != 3 else None
"""
        },
        tests={"extra-pairs-test": PAIRS},
        earns={"extra-pairs-test": 0.0},  # its vectors are not the ones required
    ),
    "large replies": forged(
        "check",
        """
# 60 MB in each reply, nearly as much as it may hold.
size = 60 << 20
raw(c, answer(n, [{"tensor": ["uint8", [size], [0]]}, 1], kind="tuple"), claimed=size)
for _ in range(60): c.sendall(bytes(1 << 20))
""",
        after="ps01-5-capped-answer",
    ),
    "a gradient of another shape": forged(
        "check",
        """
# A gradient that, compared with what it should be, takes gigabytes.
wide = torch.zeros(3_000_000, 1, 1, 1, 1, dtype=torch.int8)
v["gradients"] = v["gradients"] and {path: wide for path in "012"}
return reply
""",
        whole=True,
        at_most=True,
        # One requirement compares gradients, for which the time may not suffice on a busy machine.
        earns={"ps01-3-test": 2.5},
    ),
    "long texts": forged(
        "check",
        """
# Half a million characters that are searched, folded, and printed.
text = 160_000 * ("aaa", "a-", "...", "(((", "\\n", "a.b", "\\u2028")[n % 7]
v |= {"error": {"type": "A" * 1000, "message": text, "line": text}}
return reply
""",
        after="ps01-5-capped-answer",
    ),
}

ATTACKS = MEMORY | DISK | PROCESSES | OUTPUT | OF_THE_TESTS
