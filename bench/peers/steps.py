#!/usr/bin/env python3
"""Whole training steps of plait beside PyTorch's: the same model, tokens, threads and optimizer.

  python bench/peers/steps.py                        everything: hours on two cores
  python bench/peers/steps.py --quick                one short case of each model, minutes
  python bench/peers/steps.py --check                losses of the first steps agree; no times
  python bench/peers/steps.py --models gpt2-124m --shapes 1x1024 --train full --dtypes f32

Every variant is a process of its own. They are all started, warmed up, and then take turns, a few
steps each, so that a change of the machine's speed meets all of them. Run it with the Python that
has torch, transformers and peft (README.md); give that of another environment with --python.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
LORA_RANK = 8
BATCHES = 8  # of tokens in the file; then again from the start

GPT2 = {"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
        "layer_norm_epsilon": 1e-5, "model_type": "gpt2", "n_embd": 768, "n_head": 12,
        "n_layer": 12, "n_positions": 1024, "tie_word_embeddings": True, "vocab_size": 50257,
        "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
LLAMA = {"architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": 576,
         "initializer_range": 0.02, "intermediate_size": 1536, "max_position_embeddings": 2048,
         "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30,
         "num_key_value_heads": 3, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
         "tie_word_embeddings": True, "vocab_size": 49152}
TINY = {**LLAMA, "hidden_size": 96, "intermediate_size": 256, "num_attention_heads": 3,
        "num_hidden_layers": 2, "num_key_value_heads": 1, "vocab_size": 512}
# Configuration, and the modules that get adapters (GPT-2's q, k and v are one).
MODELS = {"gpt2-124m": (GPT2, "c_attn"), "llama-135m": (LLAMA, "q_proj,v_proj"),
          "tiny": (TINY, "q_proj,v_proj")}  # tiny: to try the script, it says nothing of speed

# How PyTorch is run, by the variant's name: torch_step.py's own options and the environment.
# `-keep`: glibc keeps freed memory instead of giving every large tensor back to the system.
KEEP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
        "MALLOC_TOP_PAD_": str(1 << 26)}
TORCH = {"eager": ("none", {}), "compile": ("default", {}), "eager-keep": ("none", KEEP),
         "compile-keep": ("default", KEEP), "autotune": ("max-autotune-no-cudagraphs", {})}
MATMUL_OPS = ("matmul", "linear")  # plait's ops, by how their names begin
ATTENTION_OPS = ("attention",)


@dataclass(frozen=True)
class Case:
    model: str
    slots: int
    slot_tokens: int
    train: str  # full, lora
    dtype: str  # f32, bf16
    threads: int

    def words(self):
        return (f"{self.model}, {self.slots} x {self.slot_tokens} tokens, {self.train}, "
                f"{self.dtype}, {self.threads} thread{'s' if self.threads > 1 else ''}")


class Unsupported(Exception):
    """A variant that cannot run this case: why."""


# ---- processes ------------------------------------------------------------------------------

class Worker:
    """One variant in one process, which obeys lines and answers with JSON."""

    def __init__(self, variant, command, environment, log, clock):
        self.variant, self.log, self.clock = variant, log, clock
        with open(log, "w") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                env={**os.environ, **environment})
        self.seconds, self.losses, self.blocks, self.warm_losses = [], [], [], []
        self.profile = None

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            lines = Path(self.log).read_text().strip().splitlines()
            raise Unsupported(lines[-1] if lines else f"ended with {self.process.returncode}")
        return json.loads(line)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.answer()

    def start(self, warmup):
        self.facts = self.answer()["ready"]
        if warmup:
            self.warm_losses = self.ask(f"steps {warmup}")["losses"]
        self.ask("reset_peak")

    def measure(self, steps):
        block = self.ask(f"steps {steps}")
        self.blocks.append(block)
        self.seconds += block[self.clock]
        self.losses += block["losses"]

    def finish(self):
        self.memory = self.ask("end")
        self.process.wait()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def available_bytes():
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 1 << 60


class Bench:
    def __init__(self, o, folder):
        self.o, self.folder = o, folder

    def prepared(self, name):
        """The folder of a model with its weights, adapter and tokens; made when it is not there."""
        folder = self.folder / name
        if (folder / "ready").exists():
            return folder
        folder.mkdir(parents=True, exist_ok=True)
        config, targets = MODELS[name]
        (folder / "config.json").write_text(json.dumps(config))
        most = max(s * t for s, t in self.o.shapes)
        command = [self.o.python, str(HERE / "torch_step.py"), "prepare", "--config",
                   str(folder / "config.json"), "--folder", str(folder), "--tokens",
                   str(BATCHES * max(most, 4096)), "--lora-rank", str(LORA_RANK),
                   "--lora-targets", targets]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"steps.py: preparing {name} failed:\n{done.stderr}")
        (folder / "ready").touch()
        return folder

    def tokens(self, case):
        """Whole batches of this case's size, cut from the model's tokens."""
        ids = (self.prepared(case.model) / "tokens.bin").read_bytes()
        batch = 4 * case.slots * case.slot_tokens
        path = self.folder / case.model / f"tokens-{case.slots}x{case.slot_tokens}.bin"
        path.write_bytes(ids[:len(ids) // batch * batch])
        return path

    def worker(self, case, variant):
        if available_bytes() < self.o.least_gb * 1e9:
            raise Unsupported(f"{available_bytes() / 1e9:.1f} GB of memory are free, --least-gb "
                              f"wants {self.o.least_gb}; fewer --variants need less")
        folder = self.prepared(case.model)
        common = ["--tokens", str(self.tokens(case)), "--slots", str(case.slots), "--slot-tokens",
                  str(case.slot_tokens), "--threads", str(case.threads), "--learning-rate",
                  str(self.o.learning_rate)]
        if case.train == "lora":
            common += ["--adapter", str(folder / "adapter")]
        environment = {"OMP_NUM_THREADS": str(case.threads)}
        if variant == "plait":
            command = [self.o.plait, str(folder / "model"), "--load", "--serve", "--dtype",
                       case.dtype, *common]
        else:
            mode, more = TORCH[variant.removesuffix("-pure")]
            environment |= more
            dtype = case.dtype + ("-pure" if variant.endswith("-pure") else "")
            command = [self.o.python, str(HERE / "torch_step.py"), "serve", "--model",
                       str(folder / "model"), "--dtype", dtype, "--compile", mode, "--optimizer",
                       self.o.optimizer, *common]
        return Worker(variant, command, environment,
                      self.folder / f"{case.model}-{variant}.log",
                      "cpu_seconds" if self.o.cpu_time else "seconds")

    def run(self, case):
        """Starts every variant, lets them take turns; returns workers, and why others are not."""
        workers, missing = [], {}
        try:
            for variant in self.o.variants:
                if variant.endswith("-pure") and case.dtype != "bf16":
                    continue
                print(f"  starting {variant} ...", file=sys.stderr, flush=True)
                try:
                    worker = self.worker(case, variant)
                    workers.append(worker)
                    worker.start(self.o.warmup)
                except Unsupported as why:
                    missing[variant] = str(why)
            workers = [w for w in workers if w.variant not in missing]
            for _ in range(self.o.rounds):
                for worker in workers:
                    worker.measure(self.o.steps)
            for worker in workers:
                if self.o.profile and worker.variant != "plait":
                    worker.profile = worker.ask("profile")
            for worker in workers:
                worker.finish()
        finally:
            for worker in workers:
                worker.kill()
        return workers, missing


# ---- results --------------------------------------------------------------------------------

def plait_shares(worker):
    """Per step: matmul, attention, other kernels, and what is no kernel; allocations."""
    blocks = worker.blocks
    total = statistics.fmean(s for b in blocks for s in b["seconds"])
    kernels = statistics.fmean(s for b in blocks for s in b["kernel_seconds"])

    def sum_of(prefixes):
        return sum(k["seconds"] for b in blocks for k in b["kernels"]
                   if k["op"].startswith(prefixes)) / len(blocks)

    matmul, attention = sum_of(MATMUL_OPS), sum_of(ATTENTION_OPS)
    return {"seconds": total, "matmul": matmul, "attention": attention,
            "rest": total - matmul - attention, "outside_kernels": total - kernels}


def summary(worker):
    shares = plait_shares(worker) if worker.variant == "plait" else worker.profile
    facts = worker.facts
    result = {"variant": worker.variant, "median": statistics.median(worker.seconds),
              "least": min(worker.seconds), "most": max(worker.seconds),
              "steps": len(worker.seconds), "seconds": worker.seconds,
              "clock": worker.clock, "losses": worker.warm_losses + worker.losses, "facts": facts, "shares": shares,
              "memory": worker.memory}
    if worker.variant == "plait":
        result["allocations"] = worker.blocks[-1].get("allocator")
        result["allocations_outside_kernels"] = worker.blocks[-1].get("allocator_outside_kernels")
        result["kernels"] = worker.blocks[-1]["kernels"]
    return result


def row(r, plait):
    gb = 1e9
    share = r["shares"] or {}
    part = [f"{100 * share[k] / share['seconds']:4.0f} %" if k in share else "     -"
            for k in ("matmul", "attention", "rest")]
    own = r["facts"].get("arena_bytes", r["facts"]["state_bytes"])
    ratio = memory = "     -"
    if plait:
        ratio = f"{r['median'] / plait['median']:6.2f}"
        memory = f"{r['memory']['peak_bytes'] / plait['memory']['peak_bytes']:6.2f}"
    return (f"  {r['variant']:<13}{r['median']:8.3f}{r['least']:8.3f}{r['most']:8.3f}  {ratio} "
            f"{r['memory']['peak_bytes'] / gb:8.2f}{own / gb:7.2f}  {memory}  {'  '.join(part)}")


HEADER = ("                median s   least    most  ratio  peak GB  known  ratio  "
          "matmul  attent.    rest")


def report(case, results, missing):
    plait = next((r for r in results if r["variant"] == "plait"), None)
    print(case.words())
    print(HEADER)
    for r in results:
        print(row(r, plait))
    if plait:
        share = plait["shares"]
        print(f"  plait outside its kernels: {100 * share['outside_kernels'] / share['seconds']:.2f}"
              " % of the step", end="")
        if plait["allocations"]:
            inside, outside = plait["allocations"], plait["allocations_outside_kernels"]
            print(f"; allocations a step: {inside['allocations']:.0f} and {inside['maps']:.0f} "
                  f"maps, of these outside kernels {outside['allocations']:.0f}", end="")
        print()
    for variant, why in missing.items():
        print(f"  {variant}: not measured: {why[:80]}")
    print(f"  {agreement(case, results)[1]}\n", flush=True)


def agreement(case, results):
    """Whether all computed the same thing: parameters, and the losses of all steps."""
    if len(results) < 2:
        return True, "nothing to compare with"
    first = results[0]
    tolerance = 1e-3 if case.dtype == "f32" else 2e-2
    worst, steps = 0.0, min(len(r["losses"]) for r in results)
    for r in results[1:]:
        for key in ("parameters", "trained"):
            if r["facts"][key] != first["facts"][key]:
                return False, (f"DIFFERENT: {r['variant']} has {r['facts'][key]} {key}, "
                               f"{first['variant']} {first['facts'][key]}")
        worst = max(worst, *(abs(a - b) for a, b in zip(r["losses"], first["losses"])))
    losses = f"{first['losses'][0]:.4f} to {first['losses'][steps - 1]:.4f}"
    return worst <= tolerance, (
        f"{'' if worst <= tolerance else 'DIFFERENT: '}losses of {steps} steps, {losses}, agree "
        f"within {worst:.1e} (wanted {tolerance:.0e}); {first['facts']['parameters']} parameters")


# ---- command line ---------------------------------------------------------------------------

def shape(text):
    try:
        slots, tokens = (int(n) for n in text.split("x"))
        if slots < 1 or tokens < 2:
            raise ValueError
        return slots, tokens
    except ValueError:
        raise argparse.ArgumentTypeError(f"found '{text}', expected SLOTSxTOKENS, as 4x512")


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    several = {"nargs": "+"}
    known = ["plait", *TORCH, *(v + "-pure" for v in TORCH)]
    parser.add_argument("--models", **several, choices=list(MODELS),
                        default=["gpt2-124m", "llama-135m"])
    parser.add_argument("--shapes", **several, type=shape, default=[(1, 1024), (4, 512)])
    parser.add_argument("--train", **several, choices=["full", "lora"], default=["full", "lora"])
    parser.add_argument("--dtypes", **several, choices=["f32", "bf16"], default=["f32", "bf16"])
    parser.add_argument("--threads", **several, type=int, default=[2, 1])
    parser.add_argument("--variants", **several, choices=known, metavar="VARIANT",
                        default=["plait", "eager", "compile"], help=", ".join(known))
    parser.add_argument("--optimizer", choices=["fused", "foreach", "loop"], default="fused",
                        help="how PyTorch runs AdamW; fused is its fastest")
    parser.add_argument("--warmup", type=int, default=2, help="steps that are not measured")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each variant")
    parser.add_argument("--steps", type=int, default=2, help="steps of a turn")
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--cpu-time", action="store_true",
                        help="CPU seconds of the process in place of wall time: with one thread, "
                        "on a machine that others use")
    parser.add_argument("--no-profile", dest="profile", action="store_false",
                        help="without the last step of PyTorch under its profiler")
    parser.add_argument("--least-gb", type=float, default=5,
                        help="free memory that a process needs to be started")
    parser.add_argument("--plait", default=str(HERE.parents[1] / "build/release/plait_step"))
    parser.add_argument("--python", default=sys.executable, help="the one that has torch")
    parser.add_argument("--work", help="folder for models and tokens, 0.5 GB a model, kept; "
                        "else a temporary one")
    parser.add_argument("--json", help="file for everything that was measured")
    parser.add_argument("--quick", action="store_true",
                        help="1x128 tokens, f32, full and lora, most threads, 2 x 1 steps")
    parser.add_argument("--check", action="store_true", help="three steps of plait and eager each; "
                        "exits 1 when losses or parameters differ")
    o = parser.parse_args()
    if o.quick:
        o.shapes, o.dtypes, o.threads = [(1, 128)], ["f32"], [max(o.threads)]
        o.warmup, o.rounds, o.steps, o.profile = 1, 2, 1, False
    if o.check:
        o.variants, o.warmup, o.rounds, o.steps, o.profile = ["plait", "eager"], 0, 1, 3, False
        o.threads = [max(o.threads)]
    if "plait" in o.variants and not os.access(o.plait, os.X_OK):
        parser.error(f"--plait '{o.plait}': not there; build the target plait_step")
    return o


def main():
    o = parse()
    cases = [Case(m, *s, t, d, n) for m in o.models for s in o.shapes for t in o.train
             for d in o.dtypes for n in o.threads]
    kept, same = [], True
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(o, Path(o.work or temporary))
        for case in cases:
            workers, missing = bench.run(case)
            results = [summary(w) for w in workers]
            if o.check:
                fine, words = agreement(case, results)
                same = same and fine and not missing
                print(f"{case.words()}:\n  {words}")
                for variant, why in missing.items():
                    print(f"  {variant}: {why[:90]}")
            else:
                report(case, results, missing)
            kept.append({"case": case.__dict__, "results": results, "missing": missing})
            if o.json:
                Path(o.json).write_text(json.dumps(kept, indent=1))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
