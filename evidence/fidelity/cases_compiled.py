"""Compiled graphs, profilers of PyTorch, processes and ranks."""

from evidence.fidelity.case import torch_program
from evidence.fidelity.cases_torch import NET
from evidence.fidelity.cases_tracers import KINETO

CASES = [
    torch_program(
        "TorchScript",
        """
        s = torch.jit.script(net)
        print(s.code)
        print(torch.jit.trace(net, torch.ones(4)).graph)
        """,
        before=NET,
        shows="def forward",
        normal=((r"\bnn/modules/[^\s)]*", "FILE"),),
    ),
    torch_program("fx", f"{NET}print(torch.fx.symbolic_trace(net).code)", shows="def forward"),
    torch_program("export", f"{NET}print(torch.export.export(net, (torch.ones(1, 4),)).graph)", shows="linear"),
    torch_program(
        "functional transforms",
        """
        import torch
        from torch.func import grad, vmap, jvp
        print(grad(lambda x: (x ** 3).sum())(torch.ones(2)), vmap(torch.sin)(torch.zeros(3)))
        print(jvp(torch.cos, (torch.zeros(1),), (torch.ones(1),)))
        """,
    ),
    torch_program(
        "compiled model: counters",
        """
        import torch
        from torch import nn
        from torch._dynamo.utils import counters
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        fast = torch.compile(net, backend='eager')
        o = torch.optim.SGD(net.parameters(), lr=.1)
        for i in range(6):
            o.zero_grad(); fast(torch.ones(3, 4)).sum().backward(); o.step()
        for k in sorted(counters): print(k, sorted(counters[k].items()))
        """,
        shows="frames",
    ),
    torch_program(
        "compiled step with an optimizer within: counters",
        """
        import torch
        from torch import nn
        from torch._dynamo.utils import counters
        net = nn.Linear(4, 2); o = torch.optim.Adam(net.parameters())
        @torch.compile(backend='eager')
        def step(x):
            o.zero_grad(); l = net(x).sum(); l.backward(); o.step(); return l
        for i in range(4): step(torch.ones(3, 4))
        for k in sorted(counters): print(k, sorted(counters[k].items()))
        """,
        shows="frames",
        normal=((r"\(.in_progress., \d+\)", ""),),
    ),
    torch_program(
        "compiled optimizer step: counters",
        """
        import torch
        from torch._dynamo.utils import counters
        p = [torch.ones(3, requires_grad=True)]; p[0].grad = torch.ones(3)
        o = torch.optim.Adam(p, lr=torch.tensor(.1))
        step = torch.compile(o.step, backend='eager')
        for i in range(4): step()
        for k in sorted(counters): print(k, sorted(counters[k].items()))
        print(p)
        """,
        shows="frames",
    ),
    torch_program(
        "compiled code that makes modules and loads data: explained",
        """
        import torch
        from torch.utils.data import DataLoader
        def f(x):
            m = torch.nn.Identity()
            return m(x) + 1
        e = torch._dynamo.explain(f)(torch.ones(2))
        print(e.graph_count, e.graph_break_count, [str(b.reason) for b in e.break_reasons])
        def g(x):
            for b in DataLoader(torch.ones(4, 2), batch_size=2): x = x + b.sum()
            return x
        e = torch._dynamo.explain(g)(torch.ones(2))
        print(e.graph_count, e.graph_break_count)
        """,
    ),
    torch_program(
        "compiled code: recompilations in the log",
        """
        import torch
        net = torch.nn.Linear(4, 2); o = torch.optim.SGD(net.parameters(), lr=.1)
        @torch.compile(backend='eager')
        def f(x): return net(x).sum()
        for n in (2, 3, 4):
            f(torch.ones(n, 4)).backward(); o.step()
        """,
        environment={"TORCH_LOGS": "recompiles,graph_breaks"},
        shows="Recompiling",
        normal=((r"^[VIWE]\d{4} [\d:.]+ \d+ ", ""), (r"\b\d+ (?=torch/_dynamo)", "")),
    ),
    torch_program(
        "compiled code that fails",
        """
        import torch
        @torch.compile(backend='eager', fullgraph=True)
        def f(x):
            print(x)
            return x
        f(torch.ones(1))
        """,
        code=1,
        shows="Unsupported",
    ),
    torch_program(
        "compiled by inductor",
        """
        import torch
        @torch.compile
        def f(x): return (x.sin() + 1).sum()
        x = torch.ones(8, requires_grad=True); f(x).backward(); print(x.grad)
        """,
        environment={"TORCHINDUCTOR_CACHE_DIR": "{work}/../cache"},
        shows="tensor",
        timeout=400,
    ),
    torch_program(
        "torch.profiler with stacks",
        """
        import torch
        from torch.profiler import profile, ProfilerActivity
        net = torch.nn.Linear(4, 2); o = torch.optim.SGD(net.parameters(), lr=.1)
        data = torch.utils.data.DataLoader(torch.ones(4, 4), batch_size=2)
        with profile(activities=[ProfilerActivity.CPU], with_stack=True, record_shapes=True) as p:
            for b in data:
                net(b).sum().backward(); o.step()
        p.export_chrome_trace('t.json')
        import json
        names = [e['name'] for e in json.load(open('t.json'))['traceEvents'] if e.get('cat') == 'python_function']
        print([n for n in names if 'cuptimem' in n], any('adam' in n or 'sgd' in n for n in names))
        import os, re; os.remove('t.json')
        print(sorted({re.sub(' at 0x[0-9a-f]+', '', e.name) for e in p.events()}))
        """,
        shows="True",
        normal=KINETO,
    ),
    torch_program(
        "torch.profiler with memory",
        """
        import torch
        from torch.profiler import profile, ProfilerActivity
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as p: torch.ones(1000).add(1)
        print(sorted((e.key, e.count, e.self_cpu_memory_usage) for e in p.key_averages()))
        """,
        shows="aten::ones",
        normal=KINETO,
    ),
    torch_program(
        "torch.profiler with a schedule",
        """
        import torch
        from torch.profiler import profile, schedule
        def ready(p): print('ready at', p.step_num)
        with profile(schedule=schedule(wait=1, warmup=1, active=1), on_trace_ready=ready) as p:
            for _ in range(6): torch.ones(3); p.step()
        """,
        shows="ready",
        normal=KINETO,
    ),
    torch_program(
        "record of memory",
        """
        import torch
        try: torch.cuda.memory._record_memory_history()
        except Exception as e: print(type(e).__name__)
        """,
    ),
    torch_program(
        "multiprocessing of torch",
        """
        import torch, torch.multiprocessing as m
        def f(i, t): t[i] = i + 1
        if __name__ == '__main__':
            t = torch.zeros(3); t.share_memory_(); m.spawn(f, (t,), 3); print(t)
        """,
        shows="tensor([1., 2., 3.])",
    ),
    torch_program(
        "multiprocessing of torch that fails",
        """
        import torch.multiprocessing as m
        def f(i): raise ValueError(i)
        if __name__ == '__main__': m.spawn(f, (), 1)
        """,
        code=1,
        shows="ValueError",
    ),
    torch_program(
        "tensors through a queue",
        """
        import torch, torch.multiprocessing as m
        def f(q): q.put(torch.ones(3)); q.get()
        if __name__ == '__main__':
            c = m.get_context('fork'); q = c.Queue(); p = c.Process(target=f, args=(q,)); p.start()
            print(q.get()); q.put(1); p.join()
        """,
        shows="tensor",
    ),
    torch_program(
        "two ranks of torchrun",
        """
        import torch, torch.distributed as d
        d.init_process_group('gloo')
        t = torch.ones(1) * (d.get_rank() + 1); d.all_reduce(t)
        if d.get_rank() == 0: print(t)
        d.destroy_process_group()
        """,
        command="python @ -m torch.distributed.run --standalone --nproc-per-node 2 s.py",
        shows="tensor([3.])",
        normal=(
            (r"^[WEI]\d{4} .*\n|^\[[A-Z]\d+ .*\n|^\*+\n", ""),
            (r"(?<=torchelastic_NAME/)[0-9a-f-]{36}_\w+", "RUN"),
        ),
        timeout=240,
    ),
    torch_program(
        "two ranks of torchrun, followed",
        """
        import torch, torch.distributed as d
        d.init_process_group('gloo')
        t = torch.ones(1) * (d.get_rank() + 1); d.all_reduce(t)
        if d.get_rank() == 0: print(t)
        d.destroy_process_group()
        """,
        command="python @ -m torch.distributed.run --standalone --nproc-per-node 2 s.py",
        options="--follow",
        traces=3,
        shows="tensor([3.])",
        normal=(
            (r"^[WEI]\d{4} .*\n|^\[[A-Z]\d+ .*\n|^\*+\n", ""),
            (r"(?<=torchelastic_NAME/)[0-9a-f-]{36}_\w+", "RUN"),
        ),
        timeout=240,
    ),
    torch_program(
        "distributed data parallel of one",
        """
        import os, torch, torch.distributed as d
        os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='0', RANK='0', WORLD_SIZE='1')
        d.init_process_group('gloo', init_method='file://' + os.path.abspath('store'), rank=0, world_size=1)
        m = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        m(torch.ones(2)).sum().backward(); print(m.module.bias.grad)
        d.destroy_process_group()
        """,
        shows="tensor",
        normal=((r"^\[[A-Z]\d+ .*\n", ""),),
    ),
    torch_program(
        "distributed, never destroyed",
        """
        import os, torch.distributed as d
        d.init_process_group('gloo', init_method='file://' + os.path.abspath('store'), rank=0, world_size=1)
        print('end')
        """,
        shows="end",
        normal=((r"^\[[A-Z]\d+ .*\n", ""),),
    ),
    torch_program(
        "fork after torch, and training in both",
        """
        import os, torch
        torch.set_num_threads(1)
        x = torch.ones(3, requires_grad=True); (x * 2).sum()
        pid = os.fork()
        y = (x * 3).sum()
        print(y.item(), flush=True)
        if pid == 0: os._exit(0)
        os.waitpid(pid, 0)
        """,
        shows="9.0",
    ),
    torch_program(
        "backward in a child refused",
        """
        import os, torch
        x = torch.ones(3, requires_grad=True); (x * 2).sum().backward()
        pid = os.fork()
        if pid == 0:
            try: (x * 2).sum().backward(); print('done')
            except RuntimeError as e: print(str(e)[:60])
            os._exit(0)
        os.waitpid(pid, 0)
        """,
    ),
]
