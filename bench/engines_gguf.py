"""Runs llama.cpp's converter on a model whose tokenizer it does not know by its hash: the default splitting of text
serves, since the benchmark gives tokens.

  engines_gguf.py LLAMA_CPP_FOLDER MODEL_FOLDER --outtype TYPE --outfile FILE"""

import runpy
import sys

folder = sys.argv[1]
sys.path[:0] = [folder + '/gguf-py', folder]
sys.argv[:2] = [folder + '/convert_hf_to_gguf.py']
import conversion.base  # of llama.cpp  # noqa: E402

for kind in vars(conversion.base).values():
    if isinstance(kind, type) and 'get_vocab_base_pre' in vars(kind):
        kind.get_vocab_base_pre = lambda self, tokenizer: 'default'
runpy.run_path(sys.argv[0], run_name='__main__')
