"""How fast a card multiplies and how fast its memory is: run on the node by `python3 -c`, needs PyTorch.

It prints what rackgate reads of a site's probe, and nothing if it does not come to its end.
"""

import importlib
import json
import statistics
import sys
import time
from typing import Any


def measured(torch: Any, device: Any, work: Any, each: float) -> tuple[float, int]:
    """Return the median speed of ten batches of work, in `each` per second, and their number."""
    wait = torch.cuda.synchronize if device.type == "cuda" else (lambda _device: None)
    for _ in range(3):
        work()
    speeds = []
    for _ in range(10):
        wait(device)
        start = time.perf_counter()
        for _ in range(10):
            work()
        wait(device)
        speeds.append(10 * each / (time.perf_counter() - start))
    return statistics.median(speeds), len(speeds)


def of_device(torch: Any, device: Any, size: int, copied: int) -> list[dict[str, Any]]:
    """Return both values of one device."""
    left = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    right = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    product = torch.empty_like(left)
    gemm, count = measured(torch, device, lambda: torch.mm(left, right, out=product), 2 * size**3 / 1e12)
    finite = bool(torch.isfinite(product.float()).all())
    source = torch.ones(copied, device=device, dtype=torch.uint8)
    target = torch.empty_like(source)
    hbm, _ = measured(torch, device, lambda: target.copy_(source), 2 * copied / 1e12)
    same = bool((target[-1024:] == source[-1024:]).all())
    if not (finite and same):
        raise SystemExit(f"device {device}: finite products {finite}, the same copy {same}")
    seen = f"{size} x {size}, {copied} bytes, finite and the same"
    shared = {"entity": f"gpu{device.index or 0}", "count": count, "evidence": seen}
    return [
        {"name": "gemm_bf16", "value": gemm, "unit": "TFLOP/s", **shared},
        {"name": "hbm", "value": hbm, "unit": "TB/s", **shared},
    ]


def main() -> None:
    """Measure every card, one after the other; a word `cpu` on the command line measures the CPU, small."""
    torch = importlib.import_module("torch")
    small = sys.argv[1:] == ["cpu"]
    if not small and not torch.cuda.is_available():
        raise SystemExit("PyTorch sees no accelerator")
    devices = [torch.device("cuda", at) for at in range(torch.cuda.device_count())]
    devices = [torch.device("cpu")] if small else devices
    size, copied = (256, 1 << 20) if small else (8192, 4 << 30)
    values = [value for device in devices for value in of_device(torch, device, size, copied)]
    sys.stdout.write(json.dumps({"version": 1, "complete": True, "values": values}) + "\n")


if __name__ == "__main__":
    main()
