"""In place of SGLang's kernels for processors, which no wheel has: one function, that every request needs, in torch;
the others raise when they are called."""


def assign_req_to_token_pool_cpu(req_pool_indices, req_to_token, start_offset, end_offset, out_cache_loc, *_):
    at = 0
    for number, request in enumerate(req_pool_indices.tolist()):
        start, end = int(start_offset[number]), int(end_offset[number])
        req_to_token[request, start:end] = out_cache_loc[at : at + end - start].to(req_to_token.dtype)
        at += end - start


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_, **__):
        raise NotImplementedError(f"the tests have no kernel {name}")

    missing.__name__ = name
    return missing
