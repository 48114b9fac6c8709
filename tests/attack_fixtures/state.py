"""Settings of Python, torch and the notebook, left as no honest notebook leaves them."""

from tests.attack_fixtures.attack import shared

__all__ = ["ATTACKS"]


TORCH = (
    shared(
        "generator",
        "torch's generator replaced",
        "torch.default_generator = torch.random.default_generator = torch.Generator().manual_seed(0)",
        alone=True,
    ),
    shared(
        "default device",
        "a device where tensors hold nothing",
        "torch.set_default_device('meta')",
        alone=True,
        at_most=True,
        why="its own tensors hold nothing",
    ),
    shared(
        "plain",
        "what copies and sends values, replaced",
        """
from transformer_lessons.checks.learner import local, transfer
local.outgoing = local.copied = transfer.outgoing = lambda value, *rest: value
mine('student').copied = lambda value: value
""",
        alone=True,
        at_most=True,
        why="its own results can no longer be sent",
    ),
)

PYTHON = (
    shared(
        "settings",
        "gradients off, signals ignored, streams and names that are none, a timer that fires all the time",
        """
import asyncio, builtins
torch.set_grad_enabled(False)
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
signal.signal(signal.SIGVTALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_VIRTUAL, 0.001, 0.001)
async def on():
    while True:
        get_ipython().user_ns['spread'] = 7.99999
        await asyncio.sleep(0)
asyncio.ensure_future(on())
builtins.isinstance, plain = (lambda a, b: plain(a, b)), isinstance
get_ipython().display_pub = get_ipython().displayhook.shell = builtins.display = None
sys.stdout = sys.__stdout__ = None
sys.stderr = object()
""",
    ),
    shared(
        "warnings",
        "warnings made errors",
        """
import warnings
warnings.simplefilter('error')
""",
        alone=True,
    ),
    shared(
        "folder",
        "another folder, and one that is gone",
        "os.mkdir('attack-mark-gone'); os.chdir('attack-mark-gone'); os.rmdir('/home/student/attack-mark-gone')",
        alone=True,
    ),
    shared(
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
)

NOTEBOOK = (
    shared(
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
    shared(
        "reset",
        "all names deleted",
        "get_ipython().reset()",
        after="ps01-1-test",
        alone=True,
        at_most=True,
        why="its own names are gone",
    ),
    shared(
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
)

ATTACKS = (*TORCH, *PYTHON, *NOTEBOOK)
