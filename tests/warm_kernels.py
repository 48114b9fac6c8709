"""On Linux, fork each chapter's kernel from a process that has imported torch, which saves two seconds."""

import gc
import multiprocessing
import os
import sys

import pytest
from jupyter_client.provisioning import local_provisioner

# The package first: it sets how threads wait. The compiler, because torch's first optimizer imports it.
MODULES = ["transformer_lessons", "torch._dynamo", "matplotlib.pyplot", "ipykernel.kernelapp"]


def serve(options, folder, environment, ready):
    from ipykernel.kernelapp import IPKernelApp

    gc.freeze()
    os.setsid()  # jupyter_client kills a kernel's process group, which must not be that of the tests
    ready.send(True)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    IPKernelApp.launch_instance([*options, f"--IPKernelApp.parent_handle={os.getppid()}"])


class Kernel:
    """The methods of a kernel's process that jupyter_client calls."""

    stdin = stdout = stderr = None

    def __init__(self, command, cwd, env, **_):
        forks = multiprocessing.get_context("forkserver")
        forks.set_forkserver_preload(MODULES)
        options = command[command.index("-f") :]  # the connection file, and nbgrader's options
        ready, ours = forks.Pipe(duplex=False)
        self.process = forks.Process(target=serve, args=(options, cwd or os.getcwd(), env, ours))
        self.process.start()
        ready.recv()
        self.pid, self.kill, self.terminate = self.process.pid, self.process.kill, self.process.terminate

    def poll(self):
        return self.process.exitcode

    def wait(self):
        self.process.join()
        return self.process.exitcode

    def send_signal(self, number):
        os.kill(self.pid, number)


@pytest.fixture(scope="session", autouse=True)
def warm_kernels():
    with pytest.MonkeyPatch.context() as patch:
        if sys.platform == "linux":
            patch.setattr(local_provisioner, "launch_kernel", Kernel)
        yield
