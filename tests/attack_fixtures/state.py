"""Settings of Python, torch and the notebook, left as no honest notebook leaves them."""

from functools import partial

from tests.attack_fixtures.attack import cell, shared

spoiling = partial(cell, at_most=True)  # its own process breaks, too

TORCH = {
    "generator": cell("torch.default_generator = torch.random.default_generator = torch.Generator()"),
    # A device where tensors hold nothing.
    "default device": spoiling("torch.set_default_device('meta')"),
    "plain": spoiling("""
# What copies and sends values, replaced.
from transformer_lessons.checks.learner import local, transfer
local.outgoing = local.copied = transfer.outgoing = lambda value, *rest: value
mine('student').copied = lambda value: value
"""),
}

PYTHON = {
    "settings": shared("""
# Gradients off, signals ignored, streams and names that are none, a timer that fires all the time.
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
"""),
    "warnings": cell("""
# Warnings made errors.
import warnings
warnings.simplefilter('error')
"""),
    # The working directory changes, to one that is deleted.
    "folder": cell(
        "os.mkdir('attack-mark-gone'); os.chdir('attack-mark-gone'); os.rmdir('/home/student/attack-mark-gone')"
    ),
    "modules": spoiling("""
# Modules replaced that the autograder imports later.
import types
for name in ('json', 'struct', 'select', 'linecache', 'traceback', 'asyncio'):
    sys.modules[name] = types.ModuleType(name)
"""),
}

NOTEBOOK = {
    "magics": cell("""
# Magics that change where and how one runs.
%cd /
%env PATH=/home/student
%precision 1
%colors linux
%xmode Verbose
%autoawait False
%autocall 2
%automagic off
"""),
    # All names deleted.
    "reset": spoiling("get_ipython().reset()", after="ps01-1-test"),
    "loop": cell(
        """
# The event loop closed, or another one.
import asyncio
asyncio.get_event_loop().call_soon(asyncio.get_event_loop().stop)
asyncio.set_event_loop(None)
""",
        shows="",
    ),
}

ATTACKS = TORCH | PYTHON | NOTEBOOK
