#!/usr/bin/env python3
"""One configuration of PyTorch in a process of its own; steps.py starts it. The counterpart of
plait_step: it says {"ready": ...} and obeys lines on its standard input, one JSON object each:

  steps N      N training steps: seconds and losses
  reset_peak   peak memory counts from here on
  profile      one more step under torch.profiler: matmul, attention, the rest
  end          peak memory, then it ends

`torch_step.py prepare` writes what both sides read: a randomly drawn model, tokens, an adapter.
"""
import argparse
import json
import os
import sys
import time
from pathlib import Path

MATMUL = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_addmm_activation",
          "mkldnn::_linear_pointwise", "mkl::_mkl_linear", "aten::mkldnn_linear",
          "aten::mkldnn_linear_backward")
ATTENTION = ("scaled_dot_product", "flash_attention")


def status_bytes(key):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    return 0


def say(**fields):
    print(json.dumps(fields), file=ANSWERS, flush=True)


# ---- preparing ------------------------------------------------------------------------------

def prepare(o):
    """Model, adapter and tokens under o.folder, for both sides to read."""
    import numpy
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.set_num_threads(o.threads)
    torch.manual_seed(1)
    folder = Path(o.folder)
    config = AutoConfig.for_model(**json.loads(Path(o.config).read_text()))
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder / "model")
    if o.lora_rank:
        from peft import LoraConfig, get_peft_model
        lora = LoraConfig(r=o.lora_rank, lora_alpha=2 * o.lora_rank, lora_dropout=0.0, bias="none",
                          target_modules=o.lora_targets.split(","),
                          fan_in_fan_out=config.model_type == "gpt2", task_type="CAUSAL_LM")
        get_peft_model(model, lora).save_pretrained(folder / "adapter")
    # Frequencies as in text, so that the loss falls from the first steps on.
    ranks = numpy.arange(config.vocab_size)
    p = 1 / (ranks + 10.0)
    draw = numpy.random.default_rng(1)
    tokens = draw.choice(draw.permutation(ranks), size=o.tokens, p=p / p.sum())
    tokens.astype("<i4").tofile(folder / "tokens.bin")


# ---- steps ----------------------------------------------------------------------------------

class Trainer:
    def __init__(self, o):
        import torch
        self.torch, self.o = torch, o
        torch.set_num_threads(o.threads)
        torch.set_num_interop_threads(1)
        self.model = self.open_model()
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = self.make_optimizer()
        self.batches = self.read_tokens()
        self.run_model = self.model
        if o.compile != "none":
            self.run_model = torch.compile(
                self.model, dynamic=False, mode=None if o.compile == "default" else o.compile)
        self.done = 0

    def open_model(self):
        from transformers import AutoModelForCausalLM
        torch, o = self.torch, self.o
        dtype = torch.bfloat16 if o.dtype == "bf16-pure" else torch.float32
        model = AutoModelForCausalLM.from_pretrained(
            o.model, dtype=dtype, attn_implementation="sdpa", use_cache=False)
        self.parameters = sum(p.numel() for p in model.parameters())
        if o.adapter:
            from peft import PeftModel
            model = PeftModel.from_pretrained(model, o.adapter, is_trainable=True)
            self.parameters = sum(p.numel() for p in model.parameters())
        model.train()
        return model

    def make_optimizer(self):
        """AdamW with the settings that are plait's defaults; matrices decay, the rest does not."""
        groups = [{"params": [p for p in self.trained if p.dim() >= 2], "weight_decay": 0.1},
                  {"params": [p for p in self.trained if p.dim() < 2], "weight_decay": 0.0}]
        kind = {"fused": {"fused": True}, "foreach": {"foreach": True}, "loop": {"foreach": False}}
        return self.torch.optim.AdamW([g for g in groups if g["params"]], lr=self.o.learning_rate,
                                      betas=(0.9, 0.95), eps=1e-8, **kind[self.o.optimizer])

    def read_tokens(self):
        import numpy
        ids = numpy.fromfile(self.o.tokens, dtype="<i4").astype("int64")
        return self.torch.from_numpy(ids.reshape(-1, self.o.slots, self.o.slot_tokens))

    def step(self):
        torch = self.torch
        ids = self.batches[self.done % len(self.batches)]
        self.done += 1
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.o.dtype == "bf16"):
            loss = self.run_model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def steps(self, count):
        seconds, cpu_seconds, losses = [], [], []
        for _ in range(count):
            begin, cpu_begin = time.perf_counter(), time.process_time()
            losses.append(self.step())
            seconds.append(time.perf_counter() - begin)
            cpu_seconds.append(time.process_time() - cpu_begin)
        say(seconds=seconds, cpu_seconds=cpu_seconds, losses=losses)

    def profile(self):
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CPU]) as p:
            begin = time.perf_counter()
            self.step()
            wall = time.perf_counter() - begin
        own = {e.key: e.self_cpu_time_total / 1e6 for e in p.key_averages()}
        matmul = sum(s for key, s in own.items() if key in MATMUL)
        attention = sum(s for key, s in own.items() if any(a in key for a in ATTENTION))
        longest = sorted(own.items(), key=lambda item: -item[1])[:self.o.longest]
        say(seconds=wall, matmul=matmul, attention=attention, rest=wall - matmul - attention,
            longest=dict(longest))

    def state_bytes(self):
        """Parameters, their gradients, moments: PyTorch keeps no count of CPU memory itself."""
        size = sum(p.numel() * p.element_size() for p in self.model.parameters())
        return size + 3 * sum(p.numel() * p.element_size() for p in self.trained)


def serve(o):
    import torch
    import transformers
    if o.adapter:
        import peft  # noqa: F401  part of what is loaded before any tensor is made
    imported = status_bytes("VmRSS")
    trainer = Trainer(o)
    say(ready={"framework": "torch", "version": torch.__version__,
               "transformers": transformers.__version__, "threads": torch.get_num_threads(),
               "dtype": o.dtype, "parameters": trainer.parameters,
               "trained": sum(p.numel() for p in trainer.trained),
               "state_bytes": trainer.state_bytes(), "imported_bytes": imported})
    loading = 0
    for line in sys.stdin:
        words = line.split()
        if words[0] == "steps":
            trainer.steps(int(words[1]))
        elif words[0] == "reset_peak":
            loading = max(loading, status_bytes("VmHWM"))
            Path("/proc/self/clear_refs").write_text("5")
            say(rss_bytes=status_bytes("VmRSS"))
        elif words[0] == "profile":
            trainer.profile()
        elif words[0] == "end":
            break
        else:
            sys.exit(f"torch_step.py: standard input: '{line.strip()}'; expected steps N, "
                     "reset_peak, profile or end")
    say(peak_bytes_loading=loading, peak_bytes=status_bytes("VmHWM"))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    p = commands.add_parser("prepare")
    p.add_argument("--config", required=True)
    p.add_argument("--folder", required=True)
    p.add_argument("--tokens", type=int, required=True)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--lora-rank", type=int, default=0)
    p.add_argument("--lora-targets", default="")
    p.set_defaults(run=prepare)
    p = commands.add_parser("serve")
    p.add_argument("--model", required=True)
    p.add_argument("--adapter", default="")
    p.add_argument("--tokens", required=True)
    p.add_argument("--slots", type=int, required=True)
    p.add_argument("--slot-tokens", type=int, required=True)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--dtype", choices=["f32", "bf16", "bf16-pure"], default="f32")
    p.add_argument("--compile", default="none",
                   help="none, default, or another mode of torch.compile")
    p.add_argument("--optimizer", choices=["fused", "foreach", "loop"], default="fused")
    p.add_argument("--learning-rate", type=float, default=1e-4)
    p.add_argument("--longest", type=int, default=12, help="events that a profile names")
    p.set_defaults(run=serve)
    o = parser.parse_args()
    o.run(o)


if __name__ == "__main__":
    # Answers have the standard output to themselves, whatever libraries print.
    ANSWERS = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main()
