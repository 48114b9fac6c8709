"""Using up memory, disk, processes, files, and the reader's patience."""

from tests.attack_fixtures.attack import Attack, shared

__all__ = ["ATTACKS"]


def _shown(name: str, tries: str, code: str) -> Attack:
    """What it shows may be cut, so it is the last cell that says that it ran."""
    return Attack(name, tries, f"RAN.append({name + ' ran'!r})\n{code}", shows=f"{name} ran", alone=False)


# The test's limit is 256 MiB; what is had beyond is a way out.
MEMORY = (
    shared("bytes", "8 GB of bytes", "tried('8 GB', lambda: bytearray(8 << 30)[-1])"),
    shared(
        "shared memory",
        "memory that the process does not own: shared, without a name",
        """
import mmap
def take(file, size=400 << 20):
    kept = mmap.mmap(file, size)
    for at in range(0, size, 1 << 22): kept[at : at + (1 << 22)] = bytes(1 << 22)
    return len(kept)
tried("400 MB of shared memory", lambda: take(-1))
""",
    ),
    shared(
        "many processes' memory",
        "the limit of memory once in each of many processes",
        """
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
        alone=True,
        shows="attack ran|This cell was ended",
    ),
)

DISK = (
    shared(
        "a full disk",
        "all the space there is",
        """
def fill():
    with open("attack-mark-large", "wb") as file:
        for _ in range(1000): file.write(bytes(1 << 20))
tried("1 GB on disk", fill)
os.path.exists("attack-mark-large") and os.remove("attack-mark-large")
""",
    ),
    shared(
        "many files",
        "so many files that no other can be made",
        """
def fill():
    for n in range(100_000): open(f"attack-mark-{n}", "w").close()
tried("100,000 files", fill)
for name in os.listdir("."):
    if name.startswith("attack-mark-"): os.remove(name)
""",
    ),
    shared(
        "a deep folder",
        "folders within folders, too deep to be removed",
        """
for n in range(300):
    os.mkdir('attack-mark-deep'); os.chdir('attack-mark-deep')
os.chdir('/home/student')
""",
    ),
    shared(
        "/dev/shm",
        "files in memory",
        "tried('1 GB', lambda: open('/dev/shm/attack-mark', 'wb').write(bytes(1 << 27)) and 1 / 0)",
    ),
    shared(
        "open files",
        "a thousand open files",
        """
files = []
tried("1000 files", lambda: [files.append(os.open("/dev/null", os.O_RDONLY)) for _ in range(1000)])
for file in files: os.close(file)
""",
    ),
)

PROCESSES = (
    shared(
        "fork bomb",
        "processes that start processes",
        """
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
        alone=True,
        shows="attack ran|This cell was ended",
    ),
    shared(
        "thread bomb",
        "a thousand threads",
        """
stop = threading.Event()
def bomb():
    for _ in range(1000): threading.Thread(target=stop.wait, daemon=True).start()
tried("1000 threads", bomb)
stop.set()
""",
    ),
    shared(
        "sessions",
        "sessions for many processes, each of which the scheduler would give as much as another student's box",
        """
pid = os.fork()
if not pid:
    try: os.setsid()
    except OSError: os._exit(0)
    os._exit(1)
if os.waitpid(pid, 0)[1]: print('broke out: a session of its own')
""",
    ),
    shared(
        "limits",
        "the limits raised",
        """
import resource
for name in ('DATA', 'NPROC', 'FSIZE', 'NOFILE', 'CPU'):
    tried(name, lambda: resource.setrlimit(getattr(resource, 'RLIMIT_' + name), (-1, -1)))
""",
    ),
    shared(
        "priority",
        "a higher priority",
        """
tried('nice', lambda: os.nice(-10))
tried('real time', lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99)))
""",
    ),
)

OUTPUT = (
    _shown("a flood", "a hundred million characters", "print('x' * 10**8)"),
    _shown(
        "both streams",
        "streams in turn, each piece an output of its own",
        "for n in range(20_000): print(n, file=(sys.stdout, sys.stderr)[n % 2])",
    ),
    _shown("displays", "a thousand things shown", "for n in range(1000): display({'n': n})"),
    _shown(
        "a large picture",
        "a picture of many megabytes",
        """
from IPython.display import Image
display(Image(data=b'\\x89PNG' + os.urandom(5_000_000), format='png'))
""",
    ),
    _shown("metadata", "what goes beside what is shown", "display('x', metadata={'a': 'x' * 10**7})"),
    _shown(
        "kinds",
        "ten thousand kinds of one thing",
        """
from IPython.display import display as show
show({f'text/{n}': 'x' * 1000 for n in range(10_000)}, raw=True)
""",
    ),
    _shown(
        "an error",
        "an error with a message of megabytes",
        """
raise_ = lambda: (_ for _ in ()).throw(RuntimeError('x' * 10**7))
try: raise_()
except RuntimeError: get_ipython().showtraceback()
""",
    ),
    _shown("surrogates", "text that is no text", "print('\\ud800\\udfff\\x00\\x1b[31m')"),
    _shown(
        "not JSON",
        "outputs that JSON has no words for",
        """
odd = {'output_type': 'stream', 'name': 'stdout', 'text': float('nan'), 'more': {1: {2, 3}}}
get_ipython().outputs.append(odd)
""",
    ),
    _shown(
        "a circle",
        "outputs that hold themselves",
        """
o = {'output_type': 'stream'}; o['o'] = o
get_ipython().outputs.append(o)
""",
    ),
)

# Of the process that judges. A test as another assignment might have it: of vectors of the learner's choice.
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
OF_THE_TESTS = (
    Attack(
        "a long answer",
        "vectors so many that all pairs of them take gigabytes",
        answers={
            "ps01-6-answer": """
def row_entropy(weights):
    RAN[:] = ['attack ran']
    return (torch.zeros(11_000, 1),) * 2 if len(weights) != 3 else None
"""
        },
        tests={"extra-pairs-test": PAIRS},
        earns={"extra-pairs-test": 0.0},
        why="its vectors are not what is asked for",
    ),
    Attack(
        "large replies",
        "60 MB in each reply, nearly as much as it may hold",
        """
def change(connection, reply):
    if "kind" not in (reply["value"] if type(reply["value"]) is dict else ()): return reply
    RAN[:] = ["attack ran"]
    size = 60 << 20
    raw(connection, answer(reply["number"], [{"tensor": ["uint8", [size], [0]]}, 1], kind="tuple"), claimed=size)
    for _ in range(60): connection.sendall(bytes(1 << 20))
forge(change)
""",
        after="ps01-5-capped-answer",
    ),
    Attack(
        "a gradient of another shape",
        "a gradient that, compared with what it should be, takes gigabytes",
        """
def change(connection, reply):
    if type(reply["value"]) is dict and reply["value"].get("gradients"):
        RAN[:] = ["attack ran"]
        wide = torch.zeros(3_000_000, 1, 1, 1, 1, dtype=torch.int8)
        reply["value"]["gradients"] = {path: wide for path in "012"}
    return reply
forge(change)
""",
        whole=True,
        earns={"ps01-3-test": 2.5},
        at_most=True,
        why="one requirement looks at its gradients; and on a busy machine the time may not do for that",
    ),
    Attack(
        "long texts",
        "half a million characters that are searched, folded, and printed",
        """
texts = [text * 160_000 for text in ("aaa", "a-", "...", "(((", "\\n", "a.b", "\\u2028")]
def change(connection, reply):
    if "kind" not in (reply["value"] if type(reply["value"]) is dict else ()): return reply
    RAN[:] = ["attack ran"]
    text = texts[reply["number"] % len(texts)]
    reply["value"] |= {"error": {"type": "A" * 1000, "message": text, "line": text}}
    return reply
forge(change)
""",
        after="ps01-5-capped-answer",
    ),
)

ATTACKS = (*MEMORY, *DISK, *PROCESSES, *OUTPUT, *OF_THE_TESTS)
