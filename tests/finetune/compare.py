#!/usr/bin/env python3
"""Holds a model that plait saved, as transformers loads it, against plait's own logits.

    pip install torch==2.15.0 transformers==5.24.0 peft==0.21.2
    plait eval MODEL [--adapter ADAPTER] --data FILE.jsonl --packing whole --logits L.safetensors
    tests/finetune/compare.py MODEL [--adapter ADAPTER] --data FILE.jsonl --logits L.safetensors

FILE.jsonl has prompts and completions. The folder must load with AutoTokenizer and
AutoModelForCausalLM, the adapter with PeftModel. Checked: every example has the ids that plait made
of it; the largest difference of logits, relative to the largest logit, is at most 1e-4; the loss of
the completions differs by at most 1e-5. Prints the measures as JSON; exits with 1 if one is too
large.
"""
import argparse
import json
import sys
from pathlib import Path

import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

LOGITS, LOSS = 1e-4, 1e-5
torch.set_num_threads(1)  # the models are small; more threads wait by spinning


def load(model, adapter=None):
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    if adapter:
        loaded = PeftModel.from_pretrained(loaded, adapter)
    return loaded.eval()


def sequences(file):
    """(slot, first, end) of every sequence that plait saw: runs of one number in a slot."""
    for slot, row in enumerate(file["sequences"].tolist()):
        first = 0
        for at in range(1, len(row) + 1):
            if at == len(row) or row[at] != row[first]:
                if file["learn"][slot, first:at].any():
                    yield slot, first, at
                first = at


def check_ids(folder, data, seen):
    """Every example is one sequence, and in the order of the file."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    records = [json.loads(line) for line in data.read_text().splitlines()]
    texts = [r["prompt"] + r["completion"] for r in records]
    if len(texts) != len(seen):
        sys.exit(f"{len(texts)} examples, and plait made {len(seen)} sequences of them")
    for text, ids in zip(texts, seen):
        found = tokenizer(text)["input_ids"]
        if found[:len(ids)] != ids or len(found) - len(ids) not in (0, 1):  # the last has no label
            sys.exit(f"{text!r}: transformers' ids {found}, plait's {ids}")
        if tokenizer.decode(found) != text:
            sys.exit(f"{text!r}: decoded as {tokenizer.decode(found)!r}")


@torch.no_grad()
def compare(model, adapter, data, logits_path):
    file = load_file(logits_path)
    places = list(sequences(file))
    check_ids(model, data, [file["tokens"][s, a:b].tolist() for s, a, b in places])
    theirs = load(model, adapter)
    difference = largest = 0.0
    loss = {"plait": 0.0, "transformers": 0.0}
    count = compared = 0
    for slot, first, end in places:
        part = slice(first, end)
        a = file["logits"][slot, part]
        b = theirs(input_ids=file["tokens"][slot, part].long()[None]).logits[0]
        difference = max(difference, (a - b).abs().max().item())
        largest = max(largest, b.abs().max().item())
        learn = file["learn"][slot, part] == 1
        labels = file["labels"][slot, part].long()[learn]
        for name, logits in (("plait", a), ("transformers", b)):
            loss[name] += torch.nn.functional.cross_entropy(
                logits[learn].double(), labels, reduction="sum").item()
        count += len(labels)
        compared += end - first
    return {"sequences": len(places), "tokens": compared, "learned": count,
            "logits_difference": difference, "largest_logit": largest,
            "relative_difference": difference / largest,
            "loss": loss["transformers"] / count, "plait_loss": loss["plait"] / count}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--adapter")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--logits", required=True)
    args = parser.parse_args()
    measured = compare(args.model, args.adapter, args.data, args.logits)
    print(json.dumps(measured))
    same = (measured["relative_difference"] <= LOGITS
            and abs(measured["loss"] - measured["plait_loss"]) <= LOSS)
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
