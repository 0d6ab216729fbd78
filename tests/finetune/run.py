#!/usr/bin/env python3
"""Fine-tunes the demo's model, in full and by LoRA, and checks the results with transformers.

    ./run demo                                # leaves the model in build/demo/model
    pip install torch==2.15.0 transformers==5.24.0 peft==0.21.2
    tests/finetune/run.py [--plait build/release/plait]

Runs from the root of the repository; takes a few minutes. In turn: writes the instruction file
(make_tasks.py); trains examples/finetune_full.toml and examples/finetune_lora.toml; merges the adapter;
measures the loss on held-out completions and the share of held-out prompts that are answered exactly,
for the base, the tuned model, the adapter and the merged model; holds all four against
transformers (compare.py). Exits with 1, naming what, when a bound does not hold.
"""
import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DEMO = Path("build/demo")
TASKS = DEMO / "tasks"
HELD_OUT = TASKS / "held_out.jsonl"
BASE, TUNED, ADAPTER, MERGED = (DEMO / name for name in ("model", "tuned", "adapter", "merged"))
# Name, model, adapter.
MODELS = [("base", BASE, None), ("full", TUNED, None), ("LoRA", BASE, ADAPTER),
          ("LoRA, merged", MERGED, None)]
TASK_NAMES = ["Which book", "Which verse", "Is"]  # how their prompts begin

failures = []


def expect(holds, words):
    print(f"  {'ok' if holds else 'FAILED'}: {words}", flush=True)
    if not holds:
        failures.append(words)


def heading(words):
    print(f"== {words}", flush=True)


def run(*command):
    subprocess.run([str(c) for c in command], check=True)


def output(*command):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout


def must(*command):
    code, text = output(*command)
    if code != 0:
        sys.exit(f"run.py: exit code {code}: {' '.join(str(c) for c in command)}\n{text}")
    return text


def with_adapter(adapter):
    return ["--adapter", adapter] if adapter else []


def answers(plait, model, adapter):
    """Share of the held-out prompts that are continued exactly by their completion, of all and by
    task, and how many there are."""
    text = must(plait, "generate", model, *with_adapter(adapter), "--prompts", HELD_OUT, "--stop",
                "\n", "--temperature", 0, "--tokens", 20, "--slot-tokens", 64)
    records = [json.loads(line) for line in text.splitlines()]
    right = {}
    for r in records:
        task = next(t for t in TASK_NAMES if r["prompt"].startswith(t))
        right.setdefault(task, []).append(r["generated"] + "\n" == r["completion"])
    everything = sum(right.values(), [])
    shares = {t: sum(right[t]) / len(right[t]) for t in TASK_NAMES}
    return sum(everything) / len(everything), shares, len(everything)


def measure(plait, name, model, adapter):
    heading(f"{name}: held-out loss, answers, transformers")
    begin = time.monotonic()
    logits = DEMO / "logits.safetensors"
    score = json.loads(must(plait, "eval", model, *with_adapter(adapter), "--data", HELD_OUT,
                            "--packing", "whole", "--logits", logits, "--json"))
    share, tasks, prompts = answers(plait, model, adapter)
    code, text = output(sys.executable, HERE / "compare.py", model, *with_adapter(adapter), "--data",
                        HELD_OUT, "--logits", logits)
    if not text.startswith("{"):
        sys.exit(f"run.py: compare.py ended with {code} for '{model}'")
    logits.unlink()
    measured = json.loads(text) | {"nats": score["nats_per_token"], "exact": share,
                                   "tasks": tasks, "prompts": prompts, "labels": score["tokens"]}
    expect(code == 0, f"logits within {measured['relative_difference']:.1e} of the largest of "
                      f"transformers', {measured['sequences']} sequences")
    expect(abs(measured["loss"] - measured["nats"]) <= 1e-5,
           f"loss {measured['nats']:.7f}, transformers' {measured['loss']:.7f}")
    expect(measured["labels"] == measured["learned"], f"{measured['labels']} labels in both")
    print(f"  {share:.1%} of {prompts} prompts answered exactly; {time.monotonic() - begin:.0f} s",
          flush=True)
    return measured


def check_peft_merges_alike():
    heading("the merged model, as peft merges the adapter")
    sys.path.insert(0, str(HERE))
    from compare import load
    ours = load(MERGED).state_dict()
    theirs = load(BASE, ADAPTER).merge_and_unload().state_dict()
    expect(ours.keys() == theirs.keys(), f"the same {len(ours)} tensors")
    worst = max(((ours[n] - theirs[n]).abs().max() / theirs[n].abs().max()).item()
                for n in ours.keys() & theirs.keys())
    expect(worst <= 1e-6, f"weights differ by {worst:.1e} of a tensor's largest")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plait", type=Path, default=Path("build/release/plait"))
    parser.add_argument("--keep", action="store_true", help="train nothing that is there already")
    args = parser.parse_args()
    plait = args.plait.resolve()
    if not (ROOT / BASE / "model.safetensors").exists():
        sys.exit(f"run.py: no model in '{BASE}'; './run demo' trains it")
    os.chdir(ROOT)
    run(sys.executable, HERE / "make_tasks.py", "--out", TASKS)
    for recipe, out in (("full", TUNED / "config.json"), ("lora", ADAPTER / "adapter_config.json")):
        heading(f"training: examples/finetune_{recipe}.toml")
        if not (args.keep and out.exists()):
            run(plait, "train", f"examples/finetune_{recipe}.toml")
    heading("merging")
    run(plait, "merge", BASE, ADAPTER, MERGED)
    results = {name: measure(plait, name, model, adapter) for name, model, adapter in MODELS}
    check_peft_merges_alike()
    heading("what was learned")
    for name in ("full", "LoRA"):
        expect(results[name]["nats"] < results["base"]["nats"] / 4,
               f"{name}: held-out loss {results[name]['nats']:.4f}, the base's "
               f"{results['base']['nats']:.4f}")
        expect(results[name]["exact"] > 1 / 3 and results["base"]["exact"] < 0.1,
               f"{name}: {results[name]['exact']:.1%} answered exactly, the base "
               f"{results['base']['exact']:.1%}")
    expect(abs(results["LoRA"]["nats"] - results["LoRA, merged"]["nats"]) <= 1e-5,
           "the adapter and the merged model have the same loss")
    print(f"{'model':14} {'nats':>7} {'exact':>7} {'book':>7} {'verse':>7} {'testament':>9} "
          f"{'logits':>8} {'loss':>8}")
    for name, r in results.items():
        shares = " ".join(f"{r['tasks'][t]:{w}.1%}" for t, w in zip(TASK_NAMES, (7, 7, 9)))
        print(f"{name:14} {r['nats']:7.4f} {r['exact']:7.1%} {shares} "
              f"{r['relative_difference']:8.1e} {abs(r['loss'] - r['nats']):8.1e}")
    if failures:
        print(f"{len(failures)} bounds do not hold:", *failures, sep="\n  ")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
