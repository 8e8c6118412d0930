"""What benches against PyTorch share: an environment with torch and transformers under BUILD/peers, and a process that
answers lines of JSON. Used by bench/engines, bench/training and bench/grpo."""

import json
import os
import subprocess
import sys

LIMITS = {
    'all': {},
    'avx2': {
        'ONEDNN_MAX_CPU_ISA': 'AVX2',
        'DNNL_MAX_CPU_ISA': 'AVX2',
        'ATEN_CPU_CAPABILITY': 'avx2',
        'MKL_ENABLE_INSTRUCTIONS': 'AVX2',
        'OPENBLAS_CORETYPE': 'Haswell',
    },
}


def say(text):
    print(text, file=sys.stderr, flush=True)


def quietly(*command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        sys.exit(f'{" ".join(command)}:\n{result.stdout[-3000:]}')


def install_torch(peers, *more):
    """The environment's python; `more` are packages beside torch and transformers."""
    python = f'{peers}/venv/bin/python'
    os.makedirs(peers, exist_ok=True)
    if not os.path.exists(f'{peers}/venv/ready'):
        say('installing torch and transformers')
        quietly(sys.executable, '-m', 'venv', f'{peers}/venv')
        quietly(python, '-m', 'pip', 'install', 'torch', 'transformers', 'sentencepiece')
        open(f'{peers}/venv/ready', 'w').close()
    for package in more:
        if subprocess.run([python, '-c', f'import {package}'], stderr=subprocess.DEVNULL).returncode:
            say(f'installing {package}')
            quietly(python, '-m', 'pip', 'install', package)
    return python


class Torch:
    def __init__(self, limit, threads, *command):
        self.process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **LIMITS[limit], 'OMP_NUM_THREADS': str(threads)},
        )
        self.versions = json.loads(self.process.stdout.readline())

    def ask(self, **job):
        self.process.stdin.write(json.dumps(job) + '\n')
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()
