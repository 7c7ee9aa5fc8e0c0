"""Where a model computes and in which number formats: one decision, taken before anything is allocated."""

from dataclasses import dataclass

import torch

from runtime.options import DtypeName, EngineOptions


@dataclass(frozen=True)
class Placement:
    """Activations are fp32 everywhere (fp64 where `residual_weights` is); what is stored may be narrower."""

    device: torch.device
    weights: torch.dtype
    residual_weights: torch.dtype
    """Of hyper-connections and delta nets."""
    kv: torch.dtype
    """Of keys, values and index keys. fp16 where they are many: normed keys are small numbers, and bf16 would keep 8
    bits of them."""
    decodes_on_device: bool
    """Decode asks the host for nothing: slot map on the device, one graph per number of rows where there is CUDA."""
    is_dense_fp8: bool = False
    """Large dense weights are e4m3 with a scale per output, whatever the others are."""
    is_kv_on_host: bool = False
    """Keys and values lie in pinned host memory; index keys stay on the device."""

    @classmethod
    def of(cls, device_name: str, options: EngineOptions, has_wide_kv: bool) -> "Placement":
        """The formats of a device: `--dtype fp32` is its check mode. `has_wide_kv` is the budget's."""
        is_check, is_fp8 = options.dtype == "fp32", options.dense == "fp8"
        if device_name == "cpu":
            residual = torch.float64 if is_check else torch.float32
            return cls(torch.device("cpu"), torch.float32, residual, torch.float32, False, is_fp8)
        device = torch.device("cuda", torch.cuda.current_device())
        if is_check:
            return cls(device, torch.float32, torch.float32, torch.float32, True, is_fp8, options.kv == "host")
        kv = torch.float32 if has_wide_kv else torch.float16
        return cls(device, torch.bfloat16, torch.bfloat16, kv, True, is_fp8, options.kv == "host")

    @classmethod
    def on_cpu_as_on_cuda(
        cls, dtype: DtypeName = "auto", is_dense_fp8: bool = False, is_kv_on_host: bool = False
    ) -> "Placement":
        """CUDA's path and formats with torch's ops on a CPU: what the tests run where there is no GPU."""
        narrow = dtype != "fp32"
        weights = torch.bfloat16 if narrow else torch.float32
        kv = torch.float16 if narrow else torch.float32
        return cls(torch.device("cpu"), weights, weights, kv, True, is_dense_fp8, is_kv_on_host)
