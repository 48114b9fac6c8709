"""Settings of Python, torch and the notebook, left as no honest notebook leaves them."""

from tests.attack_fixtures.attack import Attack

__all__ = ["ATTACKS"]


def _cell(name: str, tries: str, code: str, **more) -> Attack:
    return Attack(name, tries, 'print("attack ran")\n' + code, **{"alone": False} | more)


TORCH = (
    _cell(
        "gradients off",
        "gradients switched off",
        """
torch.set_grad_enabled(False)
torch.autograd.set_detect_anomaly(True)
torch.autograd.set_detect_anomaly(False)
""",
    ),
    _cell(
        "generator",
        "torch's generator replaced",
        "torch.default_generator = torch.random.default_generator = torch.Generator().manual_seed(0)",
        alone=True,
    ),
    _cell(
        "default device",
        "a device where tensors hold nothing",
        "torch.set_default_device('meta')",
        alone=True,
        at_most=True,
        why="its own tensors hold nothing",
    ),
    _cell(
        "plain",
        "what copies and sends values, replaced",
        """
from transformer_lessons.checks import local, plain
local.outgoing = local.copied = plain.outgoing = lambda value, *rest: value
mine('student').copied = lambda value: value
""",
        alone=True,
        at_most=True,
        why="its own results can no longer be sent",
    ),
)

PYTHON = (
    _cell(
        "warnings",
        "warnings made errors",
        """
import warnings
warnings.simplefilter('error')
""",
        alone=True,
    ),
    _cell(
        "signals",
        "all signals ignored",
        """
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
""",
    ),
    _cell(
        "streams",
        "output streams replaced by what is none",
        """
sys.stdout = sys.__stdout__ = None
sys.stderr = object()
""",
        shows="attack ran",
    ),
    _cell(
        "folder",
        "another folder, and one that is gone",
        "os.mkdir('attack-mark-gone'); os.chdir('attack-mark-gone'); os.rmdir('/home/student/attack-mark-gone')",
        alone=True,
    ),
    _cell(
        "modules",
        "modules replaced that the autograder imports later",
        """
import types
for name in ('json', 'struct', 'select', 'linecache', 'traceback', 'asyncio'):
    sys.modules[name] = types.ModuleType(name)
""",
        alone=True,
        at_most=True,
        why="its own process then lacks what it needs",
    ),
    _cell(
        "types",
        "the meaning of built-in types",
        """
import builtins
builtins.__build_class__, kept = (lambda *a, **k: kept(*a, **k)), builtins.__build_class__
builtins.isinstance, plain = (lambda a, b: plain(a, b)), isinstance
""",
    ),
    _cell(
        "the alarm",
        "a timer that fires all the time",
        """
signal.signal(signal.SIGVTALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_VIRTUAL, 0.001, 0.001)
""",
    ),
)

NOTEBOOK = (
    _cell(
        "magics",
        "magics that change where and how one runs",
        """
%cd /
%env PATH=/home/student
%precision 1
%colors linux
%xmode Verbose
%autoawait False
%autocall 2
%automagic off
""",
        alone=True,
    ),
    _cell(
        "reset",
        "all names deleted",
        "get_ipython().reset()",
        after="ps01-1-test",
        alone=True,
        at_most=True,
        why="its own names are gone",
    ),
    _cell(
        "loop",
        "the event loop closed, or another one",
        """
import asyncio
asyncio.get_event_loop().call_soon(asyncio.get_event_loop().stop)
asyncio.set_event_loop(None)
""",
        alone=True,
        shows="",
    ),
    _cell(
        "tasks",
        "tasks that go on while other cells run",
        """
import asyncio
async def on():
    while True:
        get_ipython().user_ns['spread'] = 7.99999
        await asyncio.sleep(0)
asyncio.ensure_future(on())
""",
    ),
    _cell(
        "display",
        "`display`, `print` and the shell itself replaced",
        """
import builtins
get_ipython().display_pub = None
get_ipython().displayhook.shell = None
builtins.display = None
""",
    ),
)

ATTACKS = (*TORCH, *PYTHON, *NOTEBOOK)
