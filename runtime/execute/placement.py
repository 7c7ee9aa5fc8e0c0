"""Where a model computes and in which number formats: one decision, taken before anything is allocated."""

from dataclasses import dataclass

import torch

from runtime.errors import UsageError
from runtime.options import DtypeName, EngineOptions


@dataclass(frozen=True)
class Placement:
    """Activations are fp32 everywhere (fp64 where `residual_weights` is); what is stored may be narrower."""

    device: torch.device
    weights: torch.dtype
    residual_weights: torch.dtype
    """Of hyper-connections and delta nets."""
    kv: torch.dtype
    """Of keys, values and index keys. fp16: normed keys are small numbers, and bf16 would keep 8 bits of them."""
    decodes_on_device: bool
    """Decode asks the host for nothing: slot map on the device, one graph per number of rows where there is CUDA."""

    @classmethod
    def of(cls, device_name: str, options: EngineOptions) -> "Placement":
        """The formats of a device: `--dtype fp32` is its check mode. Raises UsageError for what no device computes."""
        is_check = options.dtype == "fp32"
        if device_name == "cuda":
            refuse_unbuilt(options)
        if device_name == "cpu":
            residual = torch.float64 if is_check else torch.float32
            return cls(torch.device("cpu"), torch.float32, residual, torch.float32, decodes_on_device=False)
        device = torch.device("cuda", torch.cuda.current_device())
        if is_check:
            return cls(device, torch.float32, torch.float32, torch.float32, decodes_on_device=True)
        return cls(device, torch.bfloat16, torch.bfloat16, torch.float16, decodes_on_device=True)

    @classmethod
    def on_cpu_as_on_cuda(cls, dtype: DtypeName = "auto") -> "Placement":
        """CUDA's path and formats with torch's ops on a CPU: what the tests run where there is no GPU."""
        narrow = dtype != "fp32"
        weights = torch.bfloat16 if narrow else torch.float32
        kv = torch.float16 if narrow else torch.float32
        return cls(torch.device("cpu"), weights, weights, kv, decodes_on_device=True)


def refuse_unbuilt(options: EngineOptions) -> None:
    """Raise UsageError for choices that the plan knows and the CUDA path does not: better than to ignore them."""
    if options.dense == "fp8":
        raise UsageError("Dense weights in fp8 are planned but not computed yet; leave --dense at auto.")
    if options.kv == "host":
        raise UsageError("Keys and values on the host are planned but not computed yet; leave --kv at device.")
