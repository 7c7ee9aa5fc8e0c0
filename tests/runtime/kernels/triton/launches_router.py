"""Launches of the router's kernels at the flagship's shape."""

import torch

from runtime.kernels.triton_ops import router


def launch_route() -> None:
    router.route(torch.empty(4, 512), 10, renormalises=True)


def launch_route_without_renormalising() -> None:
    router.route(torch.empty(1, 48, dtype=torch.bfloat16), 4, renormalises=False)


def launch_combine() -> None:
    router.combine_routes(torch.empty(4, 10, 2560), torch.empty(4, 10), torch.empty(4, 2560))


def launch_combine_without_shared_expert() -> None:
    router.combine_routes(torch.empty(1, 4, 208), torch.empty(1, 4))
