"""vLLM's layerwise reload, of one layer at a time, fed with the weights that treadle has for the layer: fused and cut
as the layer takes them.

vllm/model_executor/model_loader/reload/layerwise.py: a layer's tensors go back to their form before processing, on the
meta device; when all its weights are given it is processed, and what comes of it is copied to where the kernels have
it. It also says which tensors never go to the meta device (a bias, from 0.27 on): these are written in place, since
kernels get them with each call. vLLM 0.25 and 0.26 take a bias there too: where only the weight is given, the kernels
would get a bias that nobody wrote. So the bias stays out of it with every version."""

from __future__ import annotations

import contextlib
import typing

from .. import errors


def reload_layer(layer: typing.Any, tensors: typing.Mapping[str, typing.Any]) -> None:
    """tensors: the layer's own name to a tensor of the shape that the layer was made with. Raises what vLLM raises;
    then the layer is undefined."""
    import torch  # type: ignore[import-not-found,unused-ignore]
    from vllm.model_executor.model_loader.reload import layerwise, meta  # type: ignore[import-not-found,unused-ignore]

    def write(param: typing.Any, loaded_weight: typing.Any) -> None:
        if param.shape != loaded_weight.shape:  # copy_ would repeat it
            raise errors.Refused(
                f"{type(layer).__name__} was made with a tensor of shape {list(param.shape)}, "
                f"and gets one of {list(loaded_weight.shape)}"
            )
        param.data.copy_(loaded_weight)

    with torch.no_grad(), _in_place(meta.SKIP_TENSORS, "bias"):
        processed = {name: tensor for name, tensor in tensors.items() if name not in meta.SKIP_TENSORS}
        for name in tensors.keys() - processed.keys():
            write(getattr(layer, name), tensors[name])
        if not processed:
            return
        layerwise.initialize_layerwise_reload(layer)
        for name, tensor in processed.items():
            param = getattr(layer, name)
            param.weight_loader = write
            param.weight_loader = layerwise.make_online_process_loader(layer, name)
            param.weight_loader(param, tensor)
        layerwise.finalize_layerwise_reload(layer, None)


@contextlib.contextmanager
def _in_place(skipped: set[str], name: str) -> typing.Iterator[None]:
    """For as long as it is open, vLLM's set of the tensors that do not go to the meta device has `name`."""
    added = {name} - skipped
    skipped.update(added)
    try:
        yield
    finally:
        skipped.difference_update(added)
