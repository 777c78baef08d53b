#!/usr/bin/env python3
"""Makes the folder of a tiny chat model: a Llama configuration, a tokenizer trained here and a chat template. It has no
weights; the engine draws them at random (--load-format dummy). What such a model says is noise; what it costs and caches is real.

Usage: make_model.py FOLDER"""

import json
import os
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

CONTEXT_TOKENS = 8192
SPECIAL = ["<unk>", "<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"]
VOCABULARY = 512

TEMPLATE = ("{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 128,
    "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "max_position_embeddings": CONTEXT_TOKENS, "vocab_size": VOCABULARY, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": True, "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 2,
}


def sentences():
    """The text the tokenizer learns from: every byte pair that matters is in it, so no download is needed."""
    things = "router pod queue session token cache prefix answer request model stream engine turn slot lane".split()
    verbs = "waits runs keeps finds serves ends starts takes gives holds reads writes".split()
    for i in range(4000):
        yield "The %s %s the %s while %d %ss %s." % (things[i % 15], verbs[i % 12], things[(i * 7) % 15], i, things[(i * 11) % 15],
                                                     verbs[(i * 5) % 12])


def make_tokenizer():
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(sentences(), trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL, show_progress=False,
                                                           initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def write(folder, name, content):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        json.dump(content, f, indent=1)


def make(folder):
    os.makedirs(folder, exist_ok=True)
    make_tokenizer().save(os.path.join(folder, "tokenizer.json"))
    write(folder, "config.json", CONFIG)
    write(folder, "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2})
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
        "model_max_length": CONTEXT_TOKENS, "chat_template": TEMPLATE, "clean_up_tokenization_spaces": False,
        "additional_special_tokens": SPECIAL[3:]})


if __name__ == "__main__":
    make(sys.argv[1])
