"""Figures of stretches, without a recording."""

from cuptimem.integrations import figures


def contributor(size: int, category: str) -> tuple[object, ...]:
    return (size, 1, 0, None, "forward", None, category, None, None)


def stretch(peak: int, end: int, parts: dict[str, int], used: int | None = None) -> dict[str, object]:
    contributors = [contributor(size, category) for category, size in parts.items()]
    device = {"device": "cuda:0", "peak": peak, "end": end, "reserved_peak": peak + 7, "contributors": contributors}
    points = [] if used is None else [(1, used, 0, 0, 0)]
    return {"devices": [device], "device_timeline": [{"device": "cuda:0", "points": points}]}


def test_parts_sum_to_the_peak() -> None:
    raw = stretch(100, 40, {"parameter": 10, "buffer": 5, "bucket": 20, "before start": 3, "input": 30}, used=500)
    assert figures.of_stretch(raw, "train", figures.used(raw)) == {
        "memory/cuda:0/peak_bytes": 100,
        "memory/cuda:0/live_bytes": 40,
        "memory/cuda:0/peak_parameters_bytes": 15,
        "memory/cuda:0/peak_gradients_bytes": 20,
        "memory/cuda:0/peak_state_bytes": 0,
        "memory/cuda:0/peak_activations_bytes": 0,
        "memory/cuda:0/peak_kept_bytes": 3,
        "memory/cuda:0/peak_other_bytes": 62,
        "memory/cuda:0/reserved_bytes": 107,
        "memory/cuda:0/used_bytes": 500,
    }


def test_a_higher_peak_keeps_its_parts() -> None:
    first = figures.of_stretch(stretch(100, 40, {"activation": 90}), "evaluate", {"cuda:0": 500})
    second = figures.of_stretch(stretch(60, 30, {"parameter": 60}), "evaluate", {"cuda:0": 400})
    for merged in (figures.merge(first, second), figures.merge(second, first)):
        place = "memory/evaluate/cuda:0/"
        assert merged[f"{place}peak_bytes"] == 100
        assert merged[f"{place}peak_activations_bytes"] == 90
        assert merged[f"{place}peak_parameters_bytes"] == 0
        assert merged[f"{place}reserved_bytes"] == 107
    assert figures.merge(first, second)[f"{place}live_bytes"] == 30
    assert figures.merge(first, second)[f"{place}used_bytes"] == 400
