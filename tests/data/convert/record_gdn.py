"""Makes the torch_dist checkpoint of gdn.json in this folder:  python3 record_gdn.py HF_FOLDER OUT

HF_FOLDER is what made_checkpoint() (tests/cli/made.c) makes of gdn.json. Keys, global shapes and the order of rows are
those of Megatron-core's sharded_state_dict, for linear attention (GatedDeltaNet) too: six keys for in_proj, three for
conv1d, layers by their number. No torch is needed: the classes that its pickles name are made here. Nothing here is
taken from treadle."""

import collections
import dataclasses
import enum
import io
import json
import os
import pickle
import struct
import sys
import types
import zipfile
from typing import Any

hf_folder, out = sys.argv[1:]


def place(thing, module, name=None):
    """Lets pickle find something of this file under another module's name."""
    parts = module.split('.')
    for i in range(1, len(parts) + 1):
        sys.modules.setdefault('.'.join(parts[:i]), types.ModuleType('.'.join(parts[:i])))
    name = name or thing.__name__
    thing.__module__, thing.__qualname__ = module, name
    setattr(sys.modules[module], name, thing)
    return thing


# ---- What torch's pickles name -------------------------------------------------------------------
class Size(tuple):
    def __reduce__(self):
        return Size, (tuple(self),)


class Dtype:
    def __reduce__(self):
        return self.__qualname__


def _rebuild_tensor_v2(*_):
    pass


def _get_layout(_):
    pass


class Layout:
    def __reduce__(self):
        return _get_layout, ('torch.strided',)


class Storage:
    pass


class BFloat16Storage:
    pass


@dataclasses.dataclass
class ChunkStorageMetadata:
    offsets: Any
    sizes: Any


class _MEM_FORMAT_ENCODING(enum.Enum):
    TORCH_CONTIGUOUS_FORMAT = 0


class TensorProperties:
    def __getstate__(self):
        return bfloat16, Layout(), False, _MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT, False


@dataclasses.dataclass
class TensorStorageMetadata:
    properties: Any
    size: Any
    chunks: Any


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


for cls in (
    ChunkStorageMetadata,
    _MEM_FORMAT_ENCODING,
    TensorProperties,
    TensorStorageMetadata,
    MetadataIndex,
    Metadata,
):
    place(cls, 'torch.distributed.checkpoint.metadata')
place(_StorageInfo, 'torch.distributed.checkpoint.filesystem')
place(Size, 'torch')
place(BFloat16Storage, 'torch')
bfloat16 = place(Dtype(), 'torch', 'bfloat16')
place(_rebuild_tensor_v2, 'torch._utils')
place(_get_layout, 'torch.serialization')


class Tensor:
    """bf16, as rows of bytes: shape[0] rows of the rest."""

    def __init__(self, shape, rows):
        self.shape, self.rows = tuple(shape), rows

    def __reduce__(self):
        stride, size = [], 1
        for n in reversed(self.shape):
            stride.insert(0, size)
            size *= n
        return _rebuild_tensor_v2, (Storage(), 0, Size(self.shape), tuple(stride), False, collections.OrderedDict())


def torch_save(tensor):
    data = b''.join(tensor.rows)
    image, stream = io.BytesIO(), io.BytesIO()
    pickler = pickle.Pickler(stream, protocol=2)
    pickler.persistent_id = lambda x: (
        ('storage', BFloat16Storage, '0', 'cpu', len(data) // 2) if isinstance(x, Storage) else None
    )
    pickler.dump(tensor)
    with zipfile.ZipFile(image, 'w') as archive:
        for name, content in (
            ('data.pkl', stream.getvalue()),
            ('byteorder', b'little'),
            ('data/0', data),
            ('version', b'3\n'),
        ):
            archive.writestr(zipfile.ZipInfo(f'archive/{name}'), content)
    return image.getvalue()


# ---- The model -----------------------------------------------------------------------------------
c = json.load(open(f'{hf_folder}/config.json'))
image = open(f'{hf_folder}/model.safetensors', 'rb').read()
header_bytes = struct.unpack('<Q', image[:8])[0]
hf = {}
for name, about in json.loads(image[8 : 8 + header_bytes]).items():
    if name == '__metadata__':
        continue
    assert about['dtype'] == 'BF16'
    begin, end = (8 + header_bytes + at for at in about['data_offsets'])
    step = (end - begin) // about['shape'][0]
    hf[name] = Tensor(about['shape'], [image[at : at + step] for at in range(begin, end, step)])

H, heads, groups, size = c['hidden_size'], c['num_attention_heads'], c['num_key_value_heads'], c['head_dim']
nk, nv = c['linear_num_key_heads'], c['linear_num_value_heads']
dk, dv = c['linear_key_head_dim'], c['linear_value_head_dim']
experts, layers, interval = c['num_experts'], c['num_hidden_layers'], c['full_attention_interval']
files, tensors, storage = [bytearray(), bytearray()], {}, {}


def add(key, tensor, cuts=2):
    """Cut in two along its rows where these are even in number: what two ranks would have written."""
    count = cuts if len(tensor.rows) % cuts == 0 else 1
    step = len(tensor.rows) // count
    chunks, rest = [], tensor.shape[1:]
    for i in range(count):
        start, shape = Size((i * step,) + (0,) * len(rest)), Size((step,) + rest)
        data = torch_save(Tensor(shape, tensor.rows[i * step : (i + 1) * step]))
        chunks.append(ChunkStorageMetadata(start, shape))
        storage[MetadataIndex(key, start, i)] = _StorageInfo(f'__{i}_0.distcp', len(files[i]), len(data))
        files[i] += data
    tensors[key] = TensorStorageMetadata(TensorProperties(), Size(tensor.shape), chunks)


def rows_of(tensor, numbers):
    return Tensor((len(numbers),) + tensor.shape[1:], [tensor.rows[i] for i in numbers])


def below(*parts):
    return Tensor((sum(p.shape[0] for p in parts),) + parts[0].shape[1:], [row for p in parts for row in p.rows])


def stacked(parts):
    return Tensor((len(parts),) + parts[0].shape, [b''.join(p.rows) for p in parts])


def minus_one(tensor):
    def number(row):
        value = struct.unpack('<f', b'\0\0' + row)[0] - 1
        bits = struct.unpack('<I', struct.pack('<f', value))[0]
        return struct.pack('<H', (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)

    return Tensor(tensor.shape, [number(row) for row in tensor.rows])


def linear_attention(to, layer):
    a, each, R = f'{layer}linear_attn.', 2 * dk + 2 * nv // nk * dv, nv // nk
    add(f'{to}self_attention.in_proj.layer_norm_weight', hf[f'{layer}input_layernorm.weight'])
    qkvz, ba, conv = hf[f'{a}in_proj_qkvz.weight'], hf[f'{a}in_proj_ba.weight'], hf[f'{a}conv1d.weight']
    begin = {'query': (0, dk), 'key': (dk, dk), 'value': (2 * dk, R * dv), 'z': (2 * dk + R * dv, R * dv)}
    for name, (at, count) in begin.items():
        add(
            f'{to}self_attention.in_proj.weight.{name}',
            rows_of(qkvz, [h * each + at + i for h in range(nk) for i in range(count)]),
        )
    for name, at in (('beta', 0), ('alpha', R)):
        add(
            f'{to}self_attention.in_proj.weight.{name}',
            rows_of(ba, [h * 2 * R + at + i for h in range(nk) for i in range(R)]),
        )
    for name, at, count in (('query', 0, nk * dk), ('key', nk * dk, nk * dk), ('value', 2 * nk * dk, nv * dv)):
        add(f'{to}self_attention.conv1d.weight.{name}', rows_of(conv, range(at, at + count)))
    for theirs, ours in (('dt_bias', 'dt_bias'), ('A_log', 'A_log'), ('out_proj.weight', 'out_proj.weight')):
        add(f'{to}self_attention.{theirs}', hf[f'{a}{ours}'])
    add(f'{to}self_attention.out_norm.weight', minus_one(hf[f'{a}norm.weight']))


def attention(to, layer):
    a = f'{layer}self_attn.'
    q, k, v = (hf[f'{a}{x}_proj.weight'] for x in 'qkv')
    rows = []
    for g in range(groups):
        mine = range(g * heads // groups, (g + 1) * heads // groups)
        for gate in (0, size):
            rows += [q.rows[h * 2 * size + gate + i] for h in mine for i in range(size)]
        rows += k.rows[g * size : (g + 1) * size] + v.rows[g * size : (g + 1) * size]
    add(f'{to}self_attention.linear_qkv.weight', Tensor((len(rows), H), rows))
    add(f'{to}self_attention.linear_qkv.layer_norm_weight', hf[f'{layer}input_layernorm.weight'])
    add(f'{to}self_attention.linear_proj.weight', hf[f'{a}o_proj.weight'])
    for x in 'qk':
        add(f'{to}self_attention.{x}_layernorm.weight', hf[f'{a}{x}_norm.weight'])


def layer(to, of, linear):
    (linear_attention if linear else attention)(to, of)
    mlp, shared = f'{of}mlp.', f'{of}mlp.shared_expert.'
    add(f'{to}pre_mlp_layernorm.weight', hf[f'{of}post_attention_layernorm.weight'])
    add(f'{to}mlp.router.weight', hf[f'{mlp}gate.weight'])
    gate_up = [
        below(hf[f'{mlp}experts.{e}.gate_proj.weight'], hf[f'{mlp}experts.{e}.up_proj.weight']) for e in range(experts)
    ]
    add(f'{to}mlp.experts.experts.linear_fc1.weight', stacked(gate_up))
    add(
        f'{to}mlp.experts.experts.linear_fc2.weight',
        stacked([hf[f'{mlp}experts.{e}.down_proj.weight'] for e in range(experts)]),
    )
    add(f'{to}mlp.shared_experts.gate_weight', hf[f'{of}mlp.shared_expert_gate.weight'])
    add(
        f'{to}mlp.shared_experts.linear_fc1.weight',
        below(hf[f'{shared}gate_proj.weight'], hf[f'{shared}up_proj.weight']),
    )
    add(f'{to}mlp.shared_experts.linear_fc2.weight', hf[f'{shared}down_proj.weight'])


def padded(tensor):
    return Tensor((128, H), tensor.rows + [bytes(2 * H)] * (128 - len(tensor.rows)))


add('embedding.word_embeddings.weight', padded(hf['model.embed_tokens.weight']))
add('output_layer.weight', padded(hf['lm_head.weight']))
add('decoder.final_layernorm.weight', hf['model.norm.weight'])
for number in range(layers):
    layer(f'decoder.layers.{number}.', f'model.layers.{number}.', (number + 1) % interval != 0)
layer('mtp.layers.0.transformer_layer.', 'mtp.layers.0.', False)
for theirs, ours in (
    ('enorm', 'pre_fc_norm_embedding'),
    ('hnorm', 'pre_fc_norm_hidden'),
    ('eh_proj', 'fc'),
    ('final_layernorm', 'norm'),
):
    add(f'mtp.layers.0.{theirs}.weight', hf[f'mtp.{ours}.weight'])

os.makedirs(out, exist_ok=True)
for number, content in enumerate(files):
    with open(f'{out}/__{number}_0.distcp', 'wb') as file:
        file.write(content)
with open(f'{out}/.metadata', 'wb') as file:
    pickle.dump(Metadata(tensors, None, storage), file)
