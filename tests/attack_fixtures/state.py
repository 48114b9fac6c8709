"""Settings of Python, torch and the notebook, left as no honest notebook leaves them."""

from tests.attack_fixtures.attack import Attack

__all__ = ["ALIKE", "ATTACKS"]


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
        "seeds",
        "all generators seeded, so that what follows is known",
        """
import random, numpy
random.seed(0); numpy.random.seed(0); torch.manual_seed(0)
torch.default_generator.set_state(torch.Generator().get_state())
""",
    ),
    _cell(
        "generator",
        "torch's generator replaced",
        "torch.default_generator = torch.random.default_generator = torch.Generator().manual_seed(0)",
        alone=True,
    ),
    _cell(
        "default dtype",
        "another default dtype",
        """
torch.set_default_dtype(torch.float64)
torch.set_default_dtype(torch.float32)
torch.set_float32_matmul_precision('medium')
torch.use_deterministic_algorithms(True)
""",
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
        "inference mode",
        "inference mode entered and not left",
        "torch.inference_mode().__enter__()",
        alone=True,
        at_most=True,
        why="its own results carry no gradients",
    ),
    _cell(
        "autocast",
        "lower precision entered and not left",
        "torch.autocast('cpu', torch.bfloat16).__enter__()",
        alone=True,
        at_most=True,
        why="its own results are less exact",
    ),
    _cell(
        "threads",
        "threads of torch, and hooks in them",
        """
torch.set_num_threads(2)
torch.set_num_threads(1)
threading.settrace(lambda *a: None); threading.settrace(None)
""",
    ),
    _cell(
        "hooks",
        "hooks on all modules and saved tensors",
        """
torch.nn.modules.module.register_module_forward_hook(lambda m, i, o: o * 0)
torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x * 0).__enter__()
""",
        alone=True,
        at_most=True,
        why="its own gradients are wrong",
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
    _cell(
        "clone",
        "`Tensor.clone` that copies nothing, and names that lie",
        """
torch.Tensor.clone = lambda self, **options: self
torch.Tensor.__name__ = 'str'
torch.Tensor.__module__ = 'builtins'
""",
        alone=True,
        at_most=True,
        why="its own gradients may get lost",
    ),
)

PYTHON = (
    _cell(
        "recursion",
        "no recursion possible, or all",
        """
sys.setrecursionlimit(10**9)
sys.setrecursionlimit(1000)
""",
    ),
    _cell(
        "collection",
        "garbage collection off",
        """
import gc
gc.disable(); gc.freeze()
""",
    ),
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
        "environment",
        "variables that programs obey",
        """
for name in ('LD_PRELOAD', 'PYTHONPATH', 'PYTHONSTARTUP', 'PATH'): os.environ[name] = '/home/student/x'
os.environ.pop('LD_PRELOAD')
""",
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
        "imports",
        "imports that go elsewhere",
        """
class Finder:
    def find_spec(self, name, path=None, target=None):
        return None
sys.meta_path.insert(0, Finder())
sys.path[:] = ['/home/student']
sys.path_hooks.clear()
""",
        alone=True,
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
    _cell(
        "forged code",
        "bytecode that no compiler makes",
        """
def f(): pass
tried('code', lambda: f.__code__.replace(co_consts=(), co_stacksize=0) and 1 / 0)
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
    Attack(
        "files of magics",
        "a file written by a magic",
        "%%writefile attack-mark-run.py\nprint('attack ran')",
        shows="Writing",
        alone=False,
    ),
    _cell(
        "run",
        "a script run by a magic, and one of another language",
        """
%run attack-mark-run.py
!echo attack ran
""",
        shows="attack ran",
    ),
    _cell(
        "extension",
        "an extension of the notebook",
        """
open('attack_mark_extension.py', 'w').write('def load_ipython_extension(shell): shell.user_ns["spread"] = 0')
sys.path.insert(0, '.')
%load_ext attack_mark_extension
""",
    ),
    _cell(
        "backend",
        "a backend for figures",
        """
text = 'from matplotlib.backends.backend_agg import *\\ndef show(*a, **k): print("shown")'
open('attack_mark_backend.py', 'w').write(text)
import matplotlib
sys.path.insert(0, '/home/student')
matplotlib.use('module://attack_mark_backend')
""",
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
        "new names",
        "the dict of names replaced",
        """
get_ipython().user_ns = {}
get_ipython().user_module = None
""",
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
        "magic names",
        "names with a meaning: __name__, __builtins__, In, Out, _",
        """
__name__ = 'tests'
__file__ = '/x'
In = Out = _ = __ = _i = None
get_ipython().user_ns['__builtins__'] = {}
""",
        alone=True,
        at_most=True,
        why="its own names are gone",
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
    _cell(
        "history",
        "history read and written",
        """
earlier = lambda: list(get_ipython().history_manager.get_range(-1))
tried('history', lambda: [x for x in earlier() if 'HIDDEN' in x[2]] or 1 / 0)
""",
    ),
)

ATTACKS = (*TORCH, *PYTHON, *NOTEBOOK)
# Of each mechanism one way is tried at each commit; these are other ways.
ALIKE = {
    "default device": ("inference mode", "autocast", "hooks", "clone"),
    "modules": ("imports",),
    "reset": ("new names", "magic names"),
}
