"""Makes the archives in this folder with a real torch:  python3 record.py FOLDER

Classes of Megatron and of torch.distributed.checkpoint are made here, under the names and with the fields that
theirs have, so that neither need be installed."""
import argparse
import collections
import dataclasses
import enum
import io
import os
import pickle
import random
import sys
import types
from typing import Any

import torch

out = sys.argv[1]


def place(cls, module):
    """Lets pickle find a class of this file under another module's name."""
    parts = module.split('.')
    for i in range(1, len(parts) + 1):
        sys.modules.setdefault('.'.join(parts[:i]), types.ModuleType('.'.join(parts[:i])))
    setattr(sys.modules[module], cls.__name__, cls)
    cls.__module__ = module
    return cls


def values(count, start=0):
    return torch.arange(start, start + count, dtype=torch.float32)


# ---- torch.save ----------------------------------------------------------------------------------
class AttnBackend(enum.Enum):
    auto = 5


place(AttnBackend, 'megatron.core.transformer.enums')
w = values(12).reshape(3, 4)
shared = values(10, 100)
model = collections.OrderedDict()
model['a.weight'] = w.to(torch.bfloat16)
model['b.fp32'] = values(5, 20)
model['c.fp16'] = values(4, 30).half().reshape(2, 2)
model['d.transposed'] = w.t()
model['e.shared_low'] = shared[:4]
model['f.shared_high'] = shared[6:].reshape(2, 2)
model['g.scalar'] = torch.tensor(7.0)
model['h.empty'] = torch.zeros(0, 3)
model['i.parameter'] = torch.nn.Parameter(values(3, 50).to(torch.bfloat16))
model['j.int64'] = torch.arange(3)
model['k._extra_state'] = None
extra = io.BytesIO()
torch.save({'scale': torch.ones(2)}, extra)
model['l._extra_state'] = extra
model._metadata = collections.OrderedDict([('', {'version': 1})])
top = {
  'args': argparse.Namespace(
      tensor_model_parallel_size=2, attention_backend=AttnBackend.auto, dtype=torch.bfloat16,
      betas=(0.9, 0.95), none=None),
  'checkpoint_version': 3.0, 'iteration': 1200,
  'model': model,
  'optimizer': {'state': {0: {'step': torch.tensor(3.), 'exp_avg': w}}, 'param_groups': [{'lr': 1e-4, 'params': [0]}]},
  'opt_param_scheduler': {'max_lr': 1e-4, 'num_steps': 2 ** 40},
  'rng_state': [{'random_rng_state': (3, random.Random(1).getstate()[1][:5], None),
                 'torch_rng_state': torch.arange(8, dtype=torch.uint8),
                 'np_rng_state': ('MT19937', [1, 2, 3], 624, 0, 0.0)}],
}
torch.save(top, f'{out}/megatron.pt')
torch.save({'model0': {'x': values(2)}, 'model1': {'y': values(3).to(torch.bfloat16)}, 'iteration': 1},
           f'{out}/chunks.pt')
torch.save(values(2), f'{out}/tensor.pt')
torch.save({'model': {'x': values(2)}}, f'{out}/old_format.pt', _use_new_zipfile_serialization=False)


class Evil:
    """Unpickled by Python, it would make a file."""
    def __reduce__(self):
        return os.system, ('touch treadle-was-here',)


torch.save({'model': {'x': values(2)}, 'other': Evil(), 'iteration': 1}, f'{out}/evil_beside.pt')
torch.save({'model': {'x': values(2), 'y': Evil()}}, f'{out}/evil_inside.pt')


# ---- torch.distributed.checkpoint ----------------------------------------------------------------
METADATA = 'torch.distributed.checkpoint.metadata'


@dataclasses.dataclass
class ChunkStorageMetadata:
    offsets: Any
    sizes: Any


class _MEM_FORMAT_ENCODING(enum.Enum):
    TORCH_CONTIGUOUS_FORMAT = 0


class TensorProperties:
    def __init__(self, dtype):
        self.dtype = dtype

    def __getstate__(self):
        return self.dtype, torch.strided, False, _MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT, False


@dataclasses.dataclass
class TensorStorageMetadata:
    properties: Any
    size: Any
    chunks: Any


@dataclasses.dataclass
class BytesStorageMetadata:
    pass


@dataclasses.dataclass(frozen=True)
class MetadataIndex:
    fqn: str
    offset: Any = None
    index: Any = dataclasses.field(hash=False, compare=False, default=None)


@dataclasses.dataclass
class Metadata:
    state_dict_metadata: Any
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: Any = None
    version: Any = None


@dataclasses.dataclass
class _StorageInfo:
    relative_path: str
    offset: int
    length: int


for cls in (ChunkStorageMetadata, _MEM_FORMAT_ENCODING, TensorProperties, TensorStorageMetadata,
            BytesStorageMetadata, MetadataIndex, Metadata):
    place(cls, METADATA)
place(_StorageInfo, 'torch.distributed.checkpoint.filesystem')

os.makedirs(f'{out}/dist', exist_ok=True)
files = [bytearray(), bytearray()]
tensors, storage = {}, {}


def store(key, offset, index, content, file):
    image = io.BytesIO()
    if isinstance(content, bytes):
        image.write(content)
    else:
        torch.save(content, image)
    data = image.getvalue()
    storage[MetadataIndex(key, offset, index)] = _StorageInfo(f'__{file}_0.distcp', len(files[file]), len(data))
    files[file] += data


def add(key, tensor, boxes):
    chunks = []
    for i, (start, size) in enumerate(boxes):
        part = tensor[tuple(slice(a, a + b) for a, b in zip(start, size))].clone()
        chunks.append(ChunkStorageMetadata(torch.Size(start), torch.Size(size)))
        store(key, torch.Size(start), i, part, i % 2)
    tensors[key] = TensorStorageMetadata(TensorProperties(tensor.dtype), tensor.size(), chunks)


add('decoder.layers.weight', values(24).reshape(2, 4, 3).to(torch.bfloat16),
    [((layer, row, 0), (1, 2, 3)) for layer in range(2) for row in (0, 2)])
add('embedding.weight', values(10, 100).reshape(5, 2), [((0, 0), (3, 2)), ((3, 0), (2, 2))])
add('scalar', torch.tensor(4.0), [((), ())])
add('decoder.layers.0._extra_state', torch.ones(1), [((0,), (1,))])
for key in ('decoder.final._extra_state/shard_0_1', 'args'):
    tensors[key] = BytesStorageMetadata()
    store(key, None, None, b'bytes', 0)
for number, content in enumerate(files):
    with open(f'{out}/dist/__{number}_0.distcp', 'wb') as file:
        file.write(content)
with open(f'{out}/dist/.metadata', 'wb') as file:
    pickle.dump(Metadata(tensors, {'planner': AttnBackend.auto}, storage), file)
