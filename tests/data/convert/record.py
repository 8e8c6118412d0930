"""Makes the torch_dist checkpoints in this folder with a real torch:  python3 record.py HF_FOLDER OUT

HF_FOLDER is what made_checkpoint() (tests/cli/made.c) makes of moe.json or latent.json. Keys and global shapes are
those of Megatron-core's sharded_state_dict; the chunks are those of tp 2 and ep 2. Nothing here is taken from
treadle."""

import json
import os
import pickle
import struct
import sys
import tempfile

import torch

hf_folder, out = sys.argv[1:]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'torch'))
sys.argv = ['record.py', tempfile.mkdtemp()]
import record  # noqa: E402  its classes and writers; what it makes itself goes to a folder of its own

record.files, record.tensors, record.storage = [bytearray(), bytearray()], {}, {}
config = json.load(open(f'{hf_folder}/config.json'))
image = open(f'{hf_folder}/model.safetensors', 'rb').read()
header_bytes = struct.unpack('<Q', image[:8])[0]
hf = {}
for name, about in json.loads(image[8 : 8 + header_bytes]).items():
    if name != '__metadata__':
        begin, end = (8 + header_bytes + at for at in about['data_offsets'])
        dtype = {'BF16': torch.bfloat16, 'F32': torch.float32}[about['dtype']]
        hf[name] = torch.frombuffer(bytearray(image[begin:end]), dtype=dtype).reshape(about['shape'])

H, heads, layers = config['hidden_size'], config['num_attention_heads'], config['num_hidden_layers']
mla = 'kv_lora_rank' in config
experts = config.get('num_experts') or config['n_routed_experts']
dense = config.get('first_k_dense_replace', 0)
same = dense == 0 and not mla  # layers that are all alike are one tensor


def add(key, tensor, axis=None, parts=2, lead=()):
    """Cut in `parts` along an axis of the part behind `lead` leading axes, which are cut to (count of each) pieces."""
    boxes = [((), ())]
    for size, count in zip(tensor.shape, lead):
        boxes = [(s + (i,), n + (size // count,)) for s, n in boxes for i in range(0, size, size // count)]
    rest = tuple(tensor.shape[len(lead) :])
    pieces = parts if axis is not None else 1
    cut = []
    for s, n in boxes:
        for i in range(pieces):
            start, size = [0] * len(rest), list(rest)
            if axis is not None:
                size[axis] = rest[axis] // pieces
                start[axis] = i * size[axis]
            cut.append((s + tuple(start), n + tuple(size)))
    record.add(key, tensor, cut)


def qkv(layer):
    groups, size = config['num_key_value_heads'], config['head_dim']
    q, k, v = (hf[f'{layer}self_attn.{x}_proj.weight'] for x in 'qkv')
    return torch.cat([q.reshape(groups, -1, H), k.reshape(groups, size, H), v.reshape(groups, size, H)], 1).reshape(
        -1, H
    )


def gate_up(prefix):
    return torch.cat([hf[f'{prefix}gate_proj.weight'], hf[f'{prefix}up_proj.weight']])


def attention(layer):
    a = f'{layer}self_attn.'
    if not mla:
        return [
            ('self_attention.linear_qkv.layer_norm_weight', hf[f'{layer}input_layernorm.weight'], None),
            ('self_attention.linear_qkv.weight', qkv(layer), 0),
            ('self_attention.q_layernorm.weight', hf[f'{a}q_norm.weight'], None),
            ('self_attention.k_layernorm.weight', hf[f'{a}k_norm.weight'], None),
            ('self_attention.linear_proj.weight', hf[f'{a}o_proj.weight'], 1),
        ]
    return [
        ('input_layernorm.weight', hf[f'{layer}input_layernorm.weight'], None),
        ('self_attention.linear_q_down_proj.weight', hf[f'{a}q_a_proj.weight'], None),
        ('self_attention.linear_q_up_proj.layer_norm_weight', hf[f'{a}q_a_layernorm.weight'], None),
        ('self_attention.linear_q_up_proj.weight', hf[f'{a}q_b_proj.weight'], 0),
        ('self_attention.linear_kv_down_proj.weight', hf[f'{a}kv_a_proj_with_mqa.weight'], None),
        ('self_attention.linear_kv_up_proj.layer_norm_weight', hf[f'{a}kv_a_layernorm.weight'], None),
        ('self_attention.linear_kv_up_proj.weight', hf[f'{a}kv_b_proj.weight'], 0),
        ('self_attention.linear_proj.weight', hf[f'{a}o_proj.weight'], 1),
    ]


def stack(layer, part):
    return torch.stack([part(f'{layer}mlp.experts.{e}.') for e in range(experts)])


def mlp(layer, number):
    """Rows: key, tensor, the axis that tp cuts, how often, and whether experts come first."""
    norm = hf[f'{layer}post_attention_layernorm.weight']
    if number < dense:
        return [
            ('mlp.linear_fc1.layer_norm_weight', norm, None, 1, False),
            ('mlp.linear_fc1.weight', gate_up(f'{layer}mlp.'), 0, 4, False),
            ('mlp.linear_fc2.weight', hf[f'{layer}mlp.down_proj.weight'], 1, 2, False),
        ]
    rows = [
        ('pre_mlp_layernorm.weight', norm, None, 1, False),
        ('mlp.router.weight', hf[f'{layer}mlp.gate.weight'], None, 1, False),
        ('mlp.experts.experts.linear_fc1.weight', stack(layer, gate_up), 0, 4, True),
        ('mlp.experts.experts.linear_fc2.weight', stack(layer, lambda x: hf[f'{x}down_proj.weight']), 1, 2, True),
    ]
    if mla:
        shared = f'{layer}mlp.shared_experts.'
        rows += [
            ('mlp.router.expert_bias', hf[f'{layer}mlp.gate.e_score_correction_bias'], None, 1, False),
            ('mlp.shared_experts.linear_fc1.weight', gate_up(shared), 0, 4, False),
            ('mlp.shared_experts.linear_fc2.weight', hf[f'{shared}down_proj.weight'], 1, 2, False),
        ]
    return rows


def layer_rows(number):
    layer = f'model.layers.{number}.'
    return [row + (2, False) for row in attention(layer)] + mlp(layer, number)


def padded(name):
    table = torch.zeros(128, H, dtype=hf[name].dtype)
    table[: hf[name].shape[0]] = hf[name]
    return table


add('embedding.word_embeddings.weight', padded('model.embed_tokens.weight'), 0)
add('output_layer.weight', padded('lm_head.weight'), 0)
add('decoder.final_layernorm.weight', hf['model.norm.weight'])
all_rows = [layer_rows(number) for number in range(layers)]
if same:
    for rows in zip(*all_rows):
        key, _, axis, parts, of_experts = rows[0]
        add(
            f'decoder.layers.{key}',
            torch.stack([row[1] for row in rows]),
            axis,
            parts,
            (layers, 2) if of_experts else (layers,),
        )
else:
    for number, rows in enumerate(all_rows):
        for key, tensor, axis, parts, of_experts in rows:
            add(f'decoder.layers.{number}.{key}', tensor, axis, parts, (2,) if of_experts else ())
for m in range(config.get('num_nextn_predict_layers', 0)):
    layer = f'model.layers.{layers + m}.'
    for key, tensor, axis, parts, of_experts in layer_rows(layers + m):
        add(f'mtp.layers.{m}.transformer_layer.{key}', tensor, axis, parts, (2,) if of_experts else ())
    for theirs, ours, axis in (
        ('enorm', 'enorm', None),
        ('hnorm', 'hnorm', None),
        ('eh_proj', 'eh_proj', 0),
        ('final_layernorm', 'shared_head.norm', None),
    ):
        add(f'mtp.layers.{m}.{theirs}.weight', hf[f'{layer}{ours}.weight'], axis)
add('optimizer.state.exp_avg.decoder.final_layernorm.weight', torch.zeros(H))
add('decoder.layers.0.self_attention.linear_proj._extra_state', torch.ones(1))

os.makedirs(out, exist_ok=True)
for number, content in enumerate(record.files):
    with open(f'{out}/__{number}_0.distcp', 'wb') as file:
        file.write(content)
with open(f'{out}/.metadata', 'wb') as file:
    pickle.dump(record.Metadata(record.tensors, None, record.storage), file)
