"""PyTorch: tracebacks, what a program can see of its classes and modules, ends."""

from evidence.fidelity.case import program, torch_program
from evidence.fidelity.cases_tracers import KINETO

NET = "import torch\nfrom torch import nn\nnet = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))\n"


CASES = [
    torch_program(
        "optimizer without parameters",
        """
        import torch
        torch.optim.SGD([], lr=.1)
        """,
        code=1,
        shows="empty parameter list",
        fixed=True,
    ),
    *(
        torch_program(
            f"{name} with a wrong argument",
            f"{NET}torch.optim.{name}(net.parameters(), lr=-1)",
            code=1,
            shows="Invalid learning rate",
        )
        for name in ("Adam", "SGD", "AdamW", "RMSprop")
    ),
    torch_program(
        "optimizer whose closure raises",
        """
        o = torch.optim.LBFGS(net.parameters())
        def c(): raise ValueError('closure')
        o.step(c)
        """,
        before=NET,
        code=1,
        shows="closure",
    ),
    torch_program(
        "optimizer step that raises",
        """
        o = torch.optim.SGD(net.parameters(), lr=.1)
        net[0].weight.grad = torch.ones(8, 4)
        o.param_groups[0]['lr'] = 'x'
        o.step()
        """,
        before=NET,
        code=1,
        shows="Error",
    ),
    torch_program(
        "optimizer's hook that raises",
        """
        o = torch.optim.SGD(net.parameters(), lr=.1)
        o.register_step_post_hook(lambda *a: 1/0)
        o.step()
        """,
        before=NET,
        code=1,
        shows="ZeroDivisionError",
    ),
    torch_program(
        "scheduler before the optimizer",
        """
        o = torch.optim.SGD(net.parameters(), lr=.1)
        s = torch.optim.lr_scheduler.StepLR(o, 1)
        s.step()
        o.step()
        print(s.get_last_lr())
        """,
        before=NET,
        shows="lr_scheduler.step()",
    ),
    torch_program(
        "scheduler's warnings",
        """
        o = torch.optim.SGD(net.parameters(), lr=.1)
        s = torch.optim.lr_scheduler.StepLR(o, 1)
        o.step()
        s.step()
        print(s.get_last_lr(), o.step.__qualname__, hasattr(o.step, '_wrapped_by_lr_sched'))
        """,
        before=NET,
    ),
    torch_program(
        "module with a wrong argument",
        """
        from torch import nn
        class M(nn.Module):
            def __init__(self): super().__init__(bad=1)
        M()
        """,
        code=1,
        shows="unexpected keyword",
        fixed=True,
    ),
    torch_program(
        "module whose __init__ raises",
        """
        from torch import nn
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                1/0
        M()
        """,
        code=1,
        shows="ZeroDivisionError",
    ),
    torch_program(
        "module without super().__init__",
        """
        from torch import nn
        class M(nn.Module):
            def __init__(self): self.a = nn.Linear(1, 1)
        M()
        """,
        code=1,
        shows="cannot assign module",
    ),
    torch_program("module call that raises", f"{NET}net(torch.ones(3))", code=1, shows="mat1 and mat2"),
    torch_program(
        "module without forward",
        """
        from torch import nn
        import torch
        class M(nn.Module): pass
        M()(torch.ones(1))
        """,
        code=1,
        shows="missing the required",
    ),
    torch_program(
        "module's hook that raises",
        """
        net.register_forward_hook(lambda *a: 1/0)
        net(torch.ones(4))
        """,
        before=NET,
        code=1,
        shows="ZeroDivisionError",
    ),
    torch_program(
        "recursion in modules",
        """
        import torch
        from torch import nn
        class M(nn.Module):
            def forward(self, x): return self(x)
        M()(torch.ones(1))
        """,
        code=1,
        shows="RecursionError",
    ),
    torch_program(
        "module's __init__ recursion depth",
        """
        import sys, torch
        from torch import nn
        class M(nn.Module):
            def __init__(self, n):
                super().__init__()
                global deepest; deepest = n
                self.m = M(n + 1)
        sys.setrecursionlimit(300)
        try: M(0)
        except RecursionError: print(deepest)
        """,
    ),
    torch_program(
        "backward twice",
        """
        import torch
        x = torch.ones(1, requires_grad=True)
        y = (x * x).sum(); y.backward(); y.backward()
        """,
        code=1,
        shows="second time",
    ),
    torch_program(
        "backward of no scalar",
        """
        import torch
        x = torch.ones(3, requires_grad=True)
        (x * 2).backward()
        """,
        code=1,
        shows="scalar",
    ),
    torch_program(
        "backward hook that raises",
        """
        import torch
        x = torch.ones(3, requires_grad=True)
        y = x * 2
        y.register_hook(lambda g: 1/0)
        y.sum().backward()
        """,
        code=1,
        shows="ZeroDivisionError",
    ),
    torch_program(
        "function whose backward raises",
        """
        import torch
        class F(torch.autograd.Function):
            @staticmethod
            def forward(c, x): return x * 2
            @staticmethod
            def backward(c, g): raise ValueError('here')
        F.apply(torch.ones(1, requires_grad=True)).backward()
        """,
        code=1,
        shows="here",
    ),
    torch_program(
        "anomaly detection",
        """
        import torch
        with torch.autograd.detect_anomaly():
            x = torch.zeros(1, requires_grad=True)
            (torch.sqrt(x) * 0).sum().backward()
        """,
        code=1,
        shows="nan",
    ),
    torch_program(
        "out of memory",
        """
        import torch
        torch.empty(1 << 50)
        """,
        code=1,
        shows="4503599627370496",
    ),
    torch_program(
        "in-place change",
        """
        import torch
        x = torch.ones(3, requires_grad=True)
        y = x.exp(); y += 1; y.sum().backward()
        """,
        code=1,
        shows="inplace",
    ),
    torch_program(
        "torch warnings with stack",
        """
        import torch, warnings
        warnings.simplefilter('always')
        x = torch.ones(2, requires_grad=True) * 2
        x.grad
        """,
        shows="non-leaf",
    ),
    torch_program(
        "torch warnings as errors",
        """
        import warnings
        warnings.simplefilter('error')
        o = torch.optim.Adam(net.parameters())
        for _ in range(3):
            o.zero_grad(); net(torch.ones(4)).sum().backward(); o.step()
        print('on')
        """,
        before=NET,
        shows="on",
    ),
    program(
        "import of torch that fails",
        "import torch",
        files={"torch/__init__.py": "raise ImportError('libcudart.so not found')"},
        code=1,
        shows="libcudart.so",
        fixed=True,
        traces=0,  # it failed in an import, and nothing was allocated
    ),
    program(
        "import of torch that fails within",
        """
        try: import torch
        except OSError as e: print(e)
        import torch
        """,
        files={
            "torch/__init__.py": "from torch import _C",
            "torch/_C.py": """
                def load(): raise OSError('libtorch.so')
                load()
                """,
        },
        code=1,
        shows="in load",
    ),
    program(
        "a torch that is another one",
        """
        import torch
        print(torch.x)
        """,
        files={"torch/__init__.py": "x = 5"},
        shows="5",
        fixed=True,
    ),
    program(
        "a torch that is a file",
        """
        import torch
        print(torch.x, torch.__spec__.loader.__class__.__name__, torch.__loader__.path)
        """,
        files={"torch.py": "x = 5"},
        shows="5",
    ),
    program(
        "a torch that is a namespace",
        """
        import torch
        print(torch.__path__)
        """,
        files={"torch/data.txt": ""},
        needs=(),
    ),
    program(
        "torch is None",
        """
        import sys
        sys.modules['torch'] = None
        try: import torch
        except ImportError as e: print(e)
        """,
        shows="halted",
    ),
    program(
        "torch is looked for",
        """
        import importlib.util as u
        print(u.find_spec('torch') is None, 'torch' in __import__('sys').modules)
        """,
    ),
    torch_program(
        "torch's spec and loader",
        """
        import sys, torch
        print(torch.__spec__, torch.__loader__, type(torch.__loader__), torch.__spec__.loader is torch.__loader__)
        print(sys.meta_path)
        """,
    ),
    torch_program(
        "torch imported in a thread",
        """
        import threading
        def f():
            import torch; print(torch.ones(2).sum().item())
        t = threading.Thread(target=f); t.start(); t.join()
        """,
        shows="2.0",
    ),
    torch_program(
        "torch imported in two threads",
        """
        import threading
        def f():
            import torch; torch.ones(2); import torch.nn
        t = [threading.Thread(target=f) for _ in range(2)]
        for x in t: x.start()
        for x in t: x.join()
        print('on')
        """,
        shows="on",
    ),
    torch_program(
        "torch reloaded",
        """
        import sys, torch
        for m in [m for m in sys.modules if (m + '.').startswith('torch.utils.data.')]: del sys.modules[m]
        import torch.utils.data
        print('on')
        """,
        shows="on",
    ),
    torch_program(
        "modules after import of torch",
        """
        import sys, torch
        print(sorted(m for m in sys.modules if not m.startswith(('cuptimem', 'cloudpickle', 'rich'))))
        """,
    ),
    torch_program(
        "what is patched, inspected",
        """
        import inspect, torch
        from torch.utils.data import dataloader as d
        import torch.optim as o
        M, O, D, I = torch.nn.Module, o.Optimizer, d.DataLoader, d._BaseDataLoaderIter
        for f in (M.__init__, M.__call__, M._call_impl, M._wrapped_call_impl, O.__init__, O.step, O.profile_hook_step,
                  o.SGD.step, o.Adam.step, I.__next__, I.__init__, d._SingleProcessDataLoaderIter._next_data,
                  D.__iter__, D.__init__, torch.Tensor.backward, torch.autograd.backward):
            print(f.__qualname__, f.__module__, f.__name__, type(f).__name__, inspect.signature(f),
                  inspect.isfunction(f),
                  getattr(f, '__wrapped__', None) is not None, sorted(vars(f)), f.__defaults__, f.__kwdefaults__)
            c = f.__code__
            print(c.co_filename, c.co_name, c.co_firstlineno, c.co_varnames, c.co_freevars, f.__closure__ is None)
            print(f.__globals__['__name__'], f.__globals__ is vars(inspect.getmodule(f)), inspect.getsourcefile(f))
            print(inspect.getsource(f))
        """,
        shows="def __init__",
        fixed=True,
    ),
    torch_program(
        "torch's classes' own names",
        """
        import torch, torch.optim as o
        from torch.utils.data import DataLoader
        for c in (torch.nn.Module, o.Optimizer, o.SGD, DataLoader, torch.Tensor, torch.autograd.Function):
            print(c, sorted(vars(c)))
        """,
    ),
    torch_program(
        "torch's global hooks",
        """
        import torch
        from torch.nn.modules import module as m
        import torch.optim.optimizer as o
        for module in (m, o):
            for k, v in vars(module).items():
                if k.startswith('_global') and hasattr(v, '__len__'): print(k, len(v))
        """,
    ),
    torch_program(
        "an optimizer's hooks",
        """
        o = torch.optim.SGD(net.parameters(), lr=.1)
        print(sorted(vars(o)), o._optimizer_step_post_hooks, o._optimizer_step_pre_hooks, o.step)
        """,
        before=NET,
    ),
    torch_program(
        "a module's attributes",
        """
        net(torch.ones(4))
        print(sorted(vars(net)), net._forward_pre_hooks, net._forward_hooks)
        """,
        before=NET,
    ),
    torch_program(
        "pickle, copy and state",
        """
        import copy, hashlib, io, pickle
        for m in net.parameters(): m.data.fill_(1)
        o = torch.optim.Adam(net.parameters())
        b = io.BytesIO(); torch.save((net, o), b); c = copy.deepcopy((net, o))
        print(len(b.getvalue()), len(pickle.dumps(net)), len(pickle.dumps(o)), c[1].state_dict())
        """,
        before=NET,
    ),
    torch_program(
        "numbers of a training",
        """
        torch.manual_seed(0)
        for p in net.parameters(): nn.init.normal_(p)
        o = torch.optim.Adam(net.parameters(), lr=.1)
        for i in range(20):
            o.zero_grad(); l = net(torch.randn(5, 4)).pow(2).mean(); l.backward(); o.step()
            print(i, l.item())
        print(torch.get_rng_state().sum())
        """,
        before=NET,
    ),
    torch_program(
        "nodes' numbers",
        """
        import torch
        x = torch.ones(2, requires_grad=True)
        print([(x * i).grad_fn._sequence_nr() for i in range(5)])
        """,
    ),
    torch_program(
        "profile hooks of autograd",
        """
        import torch
        from torch.autograd import profiler as p
        with p.profile() as prof: torch.ones(3).add(1)
        print([e.name for e in prof.function_events])
        """,
        shows="aten::add",
        normal=KINETO,
    ),
    torch_program(
        "default modes",
        """
        import torch
        print(torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype())
        print(torch.get_num_threads(), torch._C._len_torch_dispatch_stack())
        """,
    ),
    torch_program(
        "modes of dispatch and functions",
        """
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.overrides import TorchFunctionMode
        class D(TorchDispatchMode):
            def __torch_dispatch__(self, f, t, a=(), k=None): print(f); return f(*a, **(k or {}))
        class F(TorchFunctionMode):
            def __torch_function__(self, f, t, a=(), k=None):
                print(getattr(f, '__name__', f)); return f(*a, **(k or {}))
        net = torch.nn.Linear(2, 2); o = torch.optim.SGD(net.parameters(), lr=.1)
        with F(), D():
            net(torch.ones(2)).sum().backward(); o.step()
        """,
        shows="aten.addmm",
    ),
    torch_program(
        "modes around everything",
        """
        import torch
        from torch.overrides import TorchFunctionMode
        class F(TorchFunctionMode):
            def __torch_function__(self, f, t, a=(), k=None):
                print(getattr(f, '__name__', f)); return f(*a, **(k or {}))
        m = F(); m.__enter__()
        net = torch.nn.Linear(2, 2)
        net(torch.ones(2)).sum().backward()
        """,
        shows="linear",
    ),
    torch_program(
        "hooks of saved tensors",
        """
        import torch
        def pack(t): print('pack'); return t
        def unpack(t): print('unpack'); return t
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            x = torch.ones(2, requires_grad=True); (x * x).sum().backward()
        """,
        shows="unpack",
    ),
    torch_program(
        "tensors alive at the end",
        """
        import torch
        class A(torch.Tensor): pass
        x = torch.ones(3, requires_grad=True).as_subclass(A); y = [x * 2]; y.append(y)
        print('end')
        """,
        shows="end",
    ),
    torch_program(
        "tensor's finalizer at the end",
        """
        import torch, weakref
        t = torch.ones(2); weakref.finalize(t, print, 'gone')
        class H:
            def __del__(self): print('hook gone')
        t2 = torch.ones(2, requires_grad=True); t2.register_hook(lambda g, h=H(): g)
        print('end')
        """,
        shows="gone",
    ),
    torch_program(
        "killed in training",
        """
        import os, torch
        x = torch.ones(1000, requires_grad=True)
        for i in range(100):
            (x * 2).sum().backward()
            if i == 50: os.kill(os.getpid(), 9)
        """,
        code=-9,
    ),
    torch_program(
        "threads that train",
        """
        import threading, torch
        out = [0] * 4
        def f(i):
            x = torch.ones(100, requires_grad=True)
            for _ in range(50): (x * i).sum().backward()
            out[i] = x.grad.sum().item()
        t = [threading.Thread(target=f, args=(i,)) for i in range(4)]
        for x in t: x.start()
        for x in t: x.join()
        print(out)
        """,
        shows="15000.0",
    ),
    torch_program(
        "python -X dev with torch",
        """
        net(torch.ones(4)).sum().backward()
        print('on')
        """,
        before=NET,
        command="python -X dev @ s.py",
        shows="on",
    ),
    torch_program(
        "python -i with torch",
        f"{NET}print('loaded')",
        command="python -i @ s.py",
        stdin="net(torch.ones(4)).shape\n",
        shows="Size([2])",
    ),
]
