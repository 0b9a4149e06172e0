# ruff: noqa: INP001  a script, in no package
"""Make a tiny chat model with random weights on the spot, for an engine that has no hub to ask.

usage: python examples/tiny_model.py FOLDER [--seed N]

Run it with the engine's own Python: it needs torch, transformers and tokenizers. The text means nothing;
that it is really computed is the point. Weights that are random throughout would emit control bytes and
loop on one word, and an acceptance rightly calls that degenerate. So the output layer is laid out to
walk from word to word, in a circle through all of them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 512
CONTEXT_TOKENS = 2048
START, TURN_BEGIN, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    + TURN_BEGIN
    + "{{ message['role'] }}\n{{ message['content'] }}"
    + TURN_END
) + ("\n{% endfor %}{% if add_generation_prompt %}" + TURN_BEGIN + "assistant\n{% endif %}")
CORPUS = [
    "A request goes in and a stream of tokens comes out. ",
    "The router sends each request to the replica with the shortest queue. ",
    "Memory, batch size and sequence length decide how many requests fit. ",
] * 40


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Train a byte-level tokenizer of exactly `VOCABULARY` entries."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[START, TURN_BEGIN, TURN_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    # So little text gives fewer merges than asked for. Random weights emit every id, and an id without
    # a text would be a token that is counted and never seen.
    tokenizer.add_tokens([f" word{index}" for index in range(VOCABULARY - tokenizer.get_vocab_size())])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=START,
        eos_token=TURN_END,
        pad_token=START,
        model_max_length=CONTEXT_TOKENS,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def words_of(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """Return the ids whose text is one whole word of plain letters and digits."""
    texts = {index: tokenizer.decode([index]) for index in range(len(tokenizer))}
    return [
        index for index, text in texts.items() if text[:1] == " " and text[1:].isalnum() and text.isascii()
    ]


def lay_out_walk(model: LlamaForCausalLM, words: list[int], seed: int) -> None:
    """Make each token's likeliest successor the next word of a shuffled circle."""
    generator = torch.Generator().manual_seed(seed)
    circle = [words[index] for index in torch.randperm(len(words), generator=generator).tolist()]
    following = dict(zip(circle, circle[1:] + circle[:1], strict=True))
    embedding, output = model.model.embed_tokens.weight, model.lm_head.weight
    with torch.no_grad():
        embedding.copy_(torch.nn.functional.normalize(torch.randn(embedding.shape, generator=generator)))
        output.zero_()
        for index in range(len(embedding)):
            output[following.get(index, circle[index % len(circle)])] += 4.0 * embedding[index]


def make_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    """Build a Llama of two layers that speaks words."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,  # the smallest that vLLM's CPU kernels have
        max_position_embeddings=CONTEXT_TOKENS,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config).to(torch.float32)
    lay_out_walk(model, words_of(tokenizer), seed)
    return model


def main() -> None:
    """Write the model's folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    tokenizer = make_tokenizer()
    make_model(tokenizer, arguments.seed).save_pretrained(arguments.folder)
    tokenizer.save_pretrained(arguments.folder)


if __name__ == "__main__":
    main()
