"""A search, a walk and a list of all objects leave the program as it was. In processes of their own: mistakes crash."""

import textwrap
from collections.abc import Callable

import pytest

from tests.conftest import Result

pytestmark = pytest.mark.torch

Run = Callable[..., Result]

PROGRAMS = {
    "tuple(generator)": """
        import torch
        from cuptimem.objects import living, referrers
        class Item: pass
        def items(count):
            for i in range(count):
                yield Item()
            for look in (living.all_objects, living.all_objects, referrers.Search):
                held.append(look())
            search = held[-1]
            assert not [one for one in search.objects if type(one) is tuple and any(type(i) is Item for i in one)]
            yield Item()
        for count in (1, 9, 10, 11, 13):  # at 10 the tuple is full, and grows with the next
            held = []
            assert len(tuple(items(count))) == count + 1
            assert len((lambda *all: all)(*items(count))) == count + 1
    """,
    "tuples in another thread": """
        import sys, threading, torch
        from cuptimem import _core
        from cuptimem.objects import living, referrers, walks
        from cuptimem.record import filling
        sys.setswitchinterval(1e-5)
        errors, over = [], threading.Event()
        def make():
            while not over.is_set():
                try:
                    tuple(x for x in range(40))
                except SystemError as error:
                    errors.append(error)
        models = [torch.nn.Linear(2, 2), torch.nn.Linear(3, 3)]
        thread = threading.Thread(target=make)
        thread.start()
        for n in range(20):
            with living.undisturbed(torch):
                living.find(torch, living.all_objects())
                walks._generations()
                filling.note(_core, living.all_objects())
            if n % 5 == 0:
                referrers.Search().close()
        over.set()
        thread.join()
        assert not errors, errors
    """,
    "gradients that other threads set to None": """
        import sys, threading, torch
        from torch import nn
        from cuptimem.objects import living
        sys.setswitchinterval(1e-4)
        models = [nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 3)) for _ in range(3)]
        over = threading.Event()
        def train(model):
            while not over.is_set():
                for parameter in model.parameters():
                    parameter.grad = None
                model(torch.ones(8, 16)).sum().backward()
        threads = [threading.Thread(target=train, args=(model,)) for model in models]
        for thread in threads:
            thread.start()
        leaves = [parameter for model in models for parameter in model.parameters()]
        read = 0
        while read < 1000:
            for leaf in leaves:
                for found in living.gradients(torch, [leaf]) or ():
                    read += found is not None and torch._C._storage_address(found) != 0
        over.set()
        for thread in threads:
            thread.join()
    """,
    "tuples that something holds": """
        from cuptimem.objects import referrers
        class Item: pass
        def function():
            local, inside = (Item(),), [(Item(),)]
            search = referrers.Search()
            search.run([local[0], inside[0][0]])
            routes = [search.route(local[0]), search.route(inside[0][0])]
            assert all(route is not None for route in routes), routes
            assert [route.head for route in routes] == ["local", "inside"], routes
            search.close()
        function()
    """,
    "locals() that the program has kept": """
        from cuptimem.objects import referrers
        def train(rate=1):
            kept = locals()
            later = object()
            referrers.Search().close()
            return sorted(kept)
        assert train() == ["rate"]
    """,
    "locals of every kind": """
        import sys
        from cuptimem import _core
        def outer(argument, captured):
            def inner():
                own, gone = captured, 1
                del gone
                return _core.frame_locals(sys._getframe())
            unset = inner
            del unset
            return inner(), _core.frame_locals(sys._getframe())
        inner, outside = outer(1, 2)
        assert inner == {"own": 2, "captured": 2}, inner
        assert {name: value for name, value in outside.items() if name != "inner"} == {"argument": 1, "captured": 2}
        class Body:
            before = 3
            found = _core.frame_locals(sys._getframe())
        assert Body.found["before"] == 3 and _core.frame_locals(sys._getframe()) == {}
        def generator():
            held = 4
            yield
        paused = generator()
        next(paused)
        assert _core.frame_locals(paused.gi_frame) == {"held": 4}
        def fails():
            held = 5
            raise ValueError
        try:
            fails()
        except ValueError as error:
            assert _core.frame_locals(error.__traceback__.tb_next.tb_frame) == {"held": 5}
    """,
    "a tracer": """
        import sys, threading
        from cuptimem.objects import referrers
        over = threading.Event()
        def search():
            while not over.is_set():
                referrers.Search().close()
        def trace(frame, event, argument):
            frame.f_locals
            return trace
        def add():
            a = 1
            b = 2
            return a + b
        sys.setswitchinterval(1e-5)
        thread = threading.Thread(target=search)
        thread.start()
        sys.settrace(trace)
        try:
            for _ in range(2000):
                assert add() == 3
        finally:
            sys.settrace(None)
            over.set()
            thread.join()
    """,
    "a tracer that searches": """
        import sys
        from cuptimem.objects import referrers
        def trace(frame, event, argument):
            if frame.f_code.co_name == "add":
                referrers._names()
            return trace
        def add():
            a = 1
            b = 2
            return a + b
        sys.settrace(trace)
        try:
            assert add() == 3
        finally:
            sys.settrace(None)
    """,
    "a namespace of the program's": """
        class Space(dict):
            def keys(self): raise RuntimeError
            def __iter__(self): raise RuntimeError
            def __delitem__(self, key): raise RuntimeError
        exec("from cuptimem.objects import referrers; referrers._names()", {}, Space())
    """,
    "collection, in threads that overlap": """
        import gc
        from cuptimem.objects import living
        first, second = living.no_collection(), living.no_collection()
        first.__enter__(); second.__enter__()
        first.__exit__(None, None, None)
        assert not gc.isenabled()
        second.__exit__(None, None, None)
        assert gc.isenabled()
        gc.disable()
        with living.no_collection():
            gc.enable()
        assert gc.isenabled()
    """,
    "a collection in place of none, with another search inside and one beside": """
        import gc
        from cuptimem.objects import living
        def collect(enable):
            assert enable and not gc.isenabled()
            gc.enable()
            with living.no_collection():  # of a finalizer
                assert not gc.isenabled()
            assert gc.isenabled()
            return has_run
        for has_run in (True, False):
            with living.no_collection() as user:
                living.collect_instead(user, collect)
            assert gc.isenabled() and not living._pausing
        beside = living.no_collection()
        with living.no_collection() as user:
            beside.__enter__()
            living.collect_instead(user, lambda enable: not enable and not gc.isenabled())
        assert not gc.isenabled()
        beside.__exit__(None, None, None)
        assert gc.isenabled()
    """,
    "a forked child": """
        import gc, os, warnings
        from cuptimem.objects import living
        before = list(warnings.filters)
        with living.no_collection(), living._no_warnings():
            warnings.simplefilter("ignore")
            child = os.fork()
            if child == 0:
                living.forget()
                os._exit(not (gc.isenabled() and warnings.filters[1:] == before))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert warnings.filters[0] == ("ignore", None, Warning, None, 0) and warnings.filters[1:] == before
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_runs_as_without(forked: Run, run: Run, name: str) -> None:
    program = textwrap.dedent(PROGRAMS[name])
    ran = (forked if "torch" in program else run)("-c", program)
    assert ran.code == 0, ran.err
