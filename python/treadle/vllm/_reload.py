"""vLLM's layerwise reload, of one layer at a time, fed with the weights that treadle has for the layer: fused and cut as the layer takes them.

vllm/model_executor/model_loader/reload/layerwise.py: a layer's tensors go back to their form before processing, on the meta device; when all its weights are
given it is processed, and what comes of it is copied to where the kernels have it. It also says which tensors never go to the meta device (a bias): these are
written in place, since kernels get them with each call."""

from __future__ import annotations

import typing

from .. import errors


def reload_layer(layer: typing.Any, tensors: typing.Mapping[str, typing.Any]) -> None:
    """tensors: the layer's own name to a tensor of the shape that the layer was made with. Raises what vLLM raises; then the layer is undefined."""
    import torch  # type: ignore[import-not-found,unused-ignore]
    from vllm.model_executor.model_loader.reload import layerwise, meta  # type: ignore[import-not-found,unused-ignore]

    def write(param: typing.Any, loaded_weight: typing.Any) -> None:
        if param.shape != loaded_weight.shape:  # copy_ would repeat it
            raise errors.Refused(f"{type(layer).__name__} was made with a tensor of shape {list(param.shape)}, and gets one of {list(loaded_weight.shape)}")
        param.data.copy_(loaded_weight)

    with torch.no_grad():
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
