"""Four streams and four threads; tensors handed from stream to stream with record_stream, others freed while in use."""

import threading

import torch

from tests.on_device.simulated.programs import Check


def main(check: Check) -> None:
    torch.manual_seed(0)
    streams = [torch.cuda.Stream() for _ in range(4)]
    weights = torch.randn(1024, 1024, device="cuda")
    results = []
    for turn in range(3):
        for stream in streams:
            x = torch.randn(2048, 1024, device="cuda")
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                y = x @ weights
                results.append(y.relu())
            x.record_stream(stream)
            del x
        check(f"turn {turn}, four streams")
        for stream in streams:
            torch.cuda.current_stream().wait_stream(stream)
        for result in results[turn * 4 :]:
            result.record_stream(torch.cuda.current_stream())
        torch.stack(results).sum()
        check(f"turn {turn} joined")
    torch.cuda.synchronize()
    del results, y
    check("results gone")

    def work(number: int) -> None:
        with torch.cuda.stream(streams[number]):
            for size in range(1, 60):
                torch.ones(size * 9_000, device="cuda").add_(1).sum()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    check("four threads done", quiet=True)
    torch.cuda.empty_cache()
    check("cache empty", quiet=True)
