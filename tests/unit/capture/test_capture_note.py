"""Meta that becomes known while a capture runs."""

from pathlib import Path

from capture_support import Program

from cuptimem import _core


def test_notes_join_the_meta_between_events(program: Program, tmp_path: Path) -> None:
    program("""
        c.capture_note({"a": "no capture yet"})
        c.capture_start(path, {"a": "first", "b": "kept"})
        c.capture_record(True)
        writer = threading.Thread(target=lambda: c.capture_emit(4, 20000))
        writer.start()
        for n in range(20): c.capture_note({"a": f"{n}", "c": "ä"})
        writer.join()
        c.capture_record(False)
        assert c.capture_stop({"d": "late"}) == ""
        c.capture_note({"a": "no capture any more"})
    """)
    trace = str(tmp_path / "t.cmem")
    meta = _core.trace_meta(trace)
    assert (meta["a"], meta["b"], meta["c"], meta["d"]) == ("19", "kept", "ä", "late")
    rows = _core.trace_dump(trace)
    kinds = [row[0] for row in rows]
    assert kinds.count("alloc") == kinds.count("free") == 4 * 20000
    assert rows[-1][0] == "end" and rows[-1][4:6] == (0, 0)


def test_a_note_survives_a_kill(program: Program, tmp_path: Path) -> None:
    done = program(
        """
        c.capture_start(path, {})
        c.capture_note({"a": "told"})
        c.capture_record(True)
        c.mark(9, 5)
        os.kill(os.getpid(), signal.SIGKILL)
    """,
        check=False,
    )
    assert done.returncode == -9
    trace = str(tmp_path / "t.cmem")
    assert _core.trace_meta(trace)["a"] == "told"
    assert [row[3:5] for row in _core.trace_dump(trace) if row[0] == "mark"] == [(5, 9)]


def test_a_note_before_a_fork_leaves_the_collector_at_rest(program: Program, tmp_path: Path) -> None:
    done = program("""
        def threads(): return len(os.listdir("/proc/self/task"))
        c.capture_start(path, {})
        before = threads()
        c.fork_before()
        resting = threads()
        c.capture_note({"a": "told"})
        noted = threads()
        c.fork_parent()
        print(before, resting, noted, threads())
        assert c.capture_stop() == ""
    """)
    assert done.stdout.split() == ["2", "1", "1", "2"]
    assert _core.trace_meta(str(tmp_path / "t.cmem"))["a"] == "told"


def test_a_recording_that_has_ended_takes_no_notes(program: Program, tmp_path: Path) -> None:
    program("""
        import resource
        c.capture_start(path, {"a": "first"})
        resource.setrlimit(resource.RLIMIT_FSIZE, (200000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        c.capture_record(True)
        while c.capture_warning() is None: c.capture_emit(1, 20000)
        size = os.path.getsize(path)
        c.capture_note({"a": "late"})
        assert os.path.getsize(path) == size
        c.capture_record(False)
        c.capture_stop()
    """)
    assert _core.trace_meta(str(tmp_path / "t.cmem"))["a"] == "first"
