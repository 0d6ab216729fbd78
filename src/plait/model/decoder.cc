#include "plait/model/decoder.h"

#include <algorithm>

#include "plait/base/text.h"

namespace plait {

DecoderNames llama_names() {
  DecoderNames n;
  n.embedding = "model.embed_tokens";
  n.layer = "model.layers.";
  n.final_norm = "model.norm";
  n.head = "lm_head";
  n.q = "self_attn.q_proj";
  n.k = "self_attn.k_proj";
  n.v = "self_attn.v_proj";
  n.o = "self_attn.o_proj";
  n.gate = "mlp.gate_proj";
  n.up = "mlp.up_proj";
  n.down = "mlp.down_proj";
  n.attention_norm = "input_layernorm";
  n.mlp_norm = "post_attention_layernorm";
  n.q_norm = "self_attn.q_norm";
  n.k_norm = "self_attn.k_norm";
  return n;
}

void Decoder::add_layer(const LayerKind& kind) {
  const auto at = std::find(kinds.begin(), kinds.end(), kind);
  kind_of_layer.push_back(static_cast<size_t>(at - kinds.begin()));
  if (at == kinds.end()) kinds.push_back(kind);
}

namespace {

// A parameter of a layer: how the block calls it, and its line without the layer's prefix.
struct LayerParam {
  std::string formal, dims, module, part, init, file;  // module.part: its name
};

// A block under construction: parameters and lines.
class BlockWriter {
 public:
  explicit BlockWriter(const Decoder& decoder) : d_(decoder) {}

  void param(LayerParam p) { params.push_back(std::move(p)); }
  // One result of one op.
  void line(std::string_view result, std::string_view op, std::string_view operands,
            std::string_view attributes = "") {
    lines += fmt::format("  {} = {}({}){}{}\n", result, op, operands,
                         attributes.empty() || attributes[0] == ' ' ? "" : " ", attributes);
  }

  // Declares weight and bias of a linear module.
  void linear(std::string_view formal, const std::string& module, std::string_view out,
              std::string_view in, bool bias, bool leads_out, int fused_part = -1);
  void norm(std::string_view formal, const std::string& module, std::string_view dims);
  std::string norm_attributes(std::string_view more = "") const;
  // The op and operands of a norm with this parameter.
  std::pair<std::string, std::string> norm_call(std::string_view x, std::string_view formal) const;

  std::vector<LayerParam> params;
  std::string lines;

 private:
  const Decoder& d_;
};

void BlockWriter::linear(std::string_view formal, const std::string& module, std::string_view out,
                         std::string_view in, bool bias, bool leads_out, int fused_part) {
  const std::string deviation =
      "normal " + number_text(leads_out ? d_.out_deviation : d_.deviation);
  std::string weight_file, bias_file;
  if (fused_part >= 0) {
    const int64_t rows = d_.heads * d_.head_size;
    const std::string part = fmt::format(" rows {} of {}", fused_part * rows, 3 * rows);
    weight_file = fmt::format("{}.weight{}", d_.names.fused_qkv, part);
    bias_file = fmt::format("{}.bias{}", d_.names.fused_qkv, part);
  } else if (d_.names.transposed) {
    weight_file = module + ".weight";
  }
  if (d_.names.transposed) weight_file += " transposed";
  param({std::string(formal), fmt::format("[{}, {}]", out, in), module, "weight", deviation,
         weight_file});
  if (bias)
    param({fmt::format("{}_bias", formal), fmt::format("[{}]", out), module, "bias", "zeros",
           bias_file});
}

void BlockWriter::norm(std::string_view formal, const std::string& module, std::string_view dims) {
  const char* init = d_.norm_offset == 1 ? "zeros" : "ones";
  param({std::string(formal), std::string(dims), module, "weight", init, ""});
  if (d_.layer_norm)
    param({fmt::format("{}_bias", formal), std::string(dims), module, "bias", "zeros", ""});
}

std::string BlockWriter::norm_attributes(std::string_view more) const {
  std::string s = " eps=" + number_text(d_.eps);
  if (d_.norm_offset != 0) s += " offset=" + number_text(d_.norm_offset);
  return s + std::string(more);
}

std::pair<std::string, std::string> BlockWriter::norm_call(std::string_view x,
                                                           std::string_view formal) const {
  return {d_.layer_norm ? "layer_norm" : "rms_norm",
          d_.layer_norm ? fmt::format("{0}, {1}, {1}_bias", x, formal)
                        : fmt::format("{}, {}", x, formal)};
}

// Ops in a row that lead to one value: the last result bears its name, the ones before it have
// a suffix that says what they lack.
class Chain {
 public:
  Chain(BlockWriter& block, std::string name, std::string x)
      : block_(block), name_(std::move(name)), x_(std::move(x)) {}
  // `operands` stand behind the value so far.
  void then(std::string suffix, std::string op, std::string operands, std::string attributes = "") {
    steps_.push_back(
        {std::move(suffix), std::move(op), std::move(operands), std::move(attributes)});
  }
  // Writes the next `count` steps.
  void write(size_t count) {
    for (; count > 0 && at_ < steps_.size(); --count, ++at_) {
      const Step& s = steps_[at_];
      const std::string result = at_ + 1 == steps_.size() ? name_ : name_ + "_" + s.suffix;
      block_.line(result, s.op, s.operands.empty() ? x_ : x_ + ", " + s.operands, s.attributes);
      x_ = result;
    }
  }
  void finish() { write(steps_.size()); }

 private:
  struct Step {
    std::string suffix, op, operands, attributes;
  };
  BlockWriter& block_;
  std::string name_, x_;
  std::vector<Step> steps_;
  size_t at_ = 0;
};

// matmul with a weight and, if there is one, its bias.
void add_linear(Chain& chain, const std::string& formal, bool bias) {
  chain.then("plain", "matmul", formal, "trans_b=1");
  if (bias) chain.then("biased", "add_bias", formal + "_bias");
}

void add_norm_behind(const Decoder& d, BlockWriter& b, Chain& chain, const std::string& formal,
                     const std::string& module) {
  if (!d.norms_behind) return;
  b.norm(formal, module, "[D]");
  const auto [op, operands] = b.norm_call("", formal);
  chain.then("normed", op, operands.substr(2), b.norm_attributes());
}

void add_qk_norm(const Decoder& d, BlockWriter& b, Chain& chain, const std::string& formal,
                 const std::string& module, std::string_view row) {
  if (d.qk_norm == Decoder::QkNorm::none) return;
  const bool by_head = d.qk_norm == Decoder::QkNorm::head;
  b.norm(formal, module, by_head ? "[K]" : fmt::format("[{}]", row));
  chain.then("normed", "rms_norm", formal,
             b.norm_attributes(by_head ? fmt::format(" head_size={}", d.head_size) : ""));
}

void write_attention(const Decoder& d, const LayerKind& kind, BlockWriter& b) {
  std::string x = "x";
  if (d.norms_before) {
    b.norm("input_layernorm", d.names.attention_norm, "[D]");
    const auto [op, operands] = b.norm_call("x", "input_layernorm");
    b.line("n", op, operands, b.norm_attributes());
    x = "n";
  }
  const bool fused = !d.names.fused_qkv.empty();
  b.linear("q_proj", d.names.q, "H", "D", d.qkv_bias, false, fused ? 0 : -1);
  b.linear("k_proj", d.names.k, "G", "D", d.qkv_bias, false, fused ? 1 : -1);
  b.linear("v_proj", d.names.v, "G", "D", d.qkv_bias, false, fused ? 2 : -1);
  Chain q(b, "q", x), k(b, "k", x), v(b, "v", x);
  add_linear(q, "q_proj", d.qkv_bias);
  add_linear(k, "k_proj", d.qkv_bias);
  add_linear(v, "v_proj", d.qkv_bias);
  add_qk_norm(d, b, q, "q_norm", d.names.q_norm, "H");
  add_qk_norm(d, b, k, "k_norm", d.names.k_norm, "G");
  if (kind.rope) {
    q.then("turned", "rope", "positions", rope_attributes(*kind.rope, d.head_size));
    k.then("turned", "rope", "positions", rope_attributes(*kind.rope, d.head_size));
  }
  for (Chain* chain : {&q, &k, &v}) chain->write(1);
  for (Chain* chain : {&q, &k, &v}) chain->finish();
  std::string attributes = fmt::format(" head_size={}", d.head_size);
  if (kind.window != 0) attributes += fmt::format(" window={}", kind.window);
  if (d.attention_cap != 0) attributes += " soft_cap=" + number_text(d.attention_cap);
  if (kind.scale != 0) attributes += " scale=" + number_text(kind.scale);
  b.line("o, lse", "attention", "q, k, v, sequences", attributes);
  b.linear("o_proj", d.names.o, "D", "H", d.o_bias, true);
  Chain attended(b, "attended", "o");
  add_linear(attended, "o_proj", d.o_bias);
  add_norm_behind(d, b, attended, "attention_out_norm", d.names.attention_out_norm);
  attended.finish();
  b.line("middle", "add", "x, attended");
}

void write_mlp(const Decoder& d, BlockWriter& b) {
  std::string m = "middle";
  if (d.norms_before) {
    b.norm("post_attention_layernorm", d.names.mlp_norm, "[D]");
    const auto [op, operands] = b.norm_call("middle", "post_attention_layernorm");
    b.line("m", op, operands, b.norm_attributes());
    m = "m";
  }
  if (d.gated) {
    b.linear("gate_proj", d.names.gate, "F", "D", d.mlp_bias, false);
    Chain gate(b, "gate", m);
    add_linear(gate, "gate_proj", d.mlp_bias);
    gate.finish();
  }
  b.linear("up_proj", d.names.up, "F", "D", d.mlp_bias, false);
  Chain up(b, "up", m);
  add_linear(up, "up_proj", d.mlp_bias);
  up.finish();
  b.line("active", d.activation, d.gated ? "gate" : "up");
  if (d.gated) b.line("gated", "mul", "active, up");
  b.linear("down_proj", d.names.down, "D", "F", d.mlp_bias, true);
  Chain down(b, "down", d.gated ? "gated" : "active");
  add_linear(down, "down_proj", d.mlp_bias);
  add_norm_behind(d, b, down, "mlp_out_norm", d.names.mlp_out_norm);
  down.finish();
  b.line("y", "add", "middle, down");
}

std::string formals(const std::vector<LayerParam>& params) {
  std::string s;
  for (const LayerParam& p : params)
    s += fmt::format("{}{} float{}", s.empty() ? "" : ", ", p.formal, p.dims);
  return s;
}

// The name of the block for a kind of layer: "layer", or "layer_1" where there are several.
std::string block_name(const Decoder& d, size_t kind) {
  return d.kinds.size() == 1 ? "layer" : fmt::format("layer_{}", kind);
}

std::string embed_block(const Decoder& d) {
  std::string s = "block embed (tokens i32[T]";
  if (d.positions > 0) s += ", positions i32[T]";
  s += ") (table float[V, D]";
  if (d.positions > 0) s += ", position_table float[P, D]";
  s += ") {\n";
  if (d.positions > 0)
    return s +
           "  token = embedding(table, tokens)\n"
           "  position = embedding(position_table, positions)\n"
           "  x = add(token, position)\n  return x\n}\n";
  if (d.embedding_scale == 1) return s + "  x = embedding(table, tokens)\n  return x\n}\n";
  return s + fmt::format(
                 "  plain = embedding(table, tokens)\n  x = scale(plain) by={}\n  return x\n}}\n",
                 number_text(d.embedding_scale));
}

// The end of every model: norm and logits, and what is wanted of them.
std::string head_block(const Decoder& d, Head head) {
  BlockWriter b(d);
  std::string inputs = "x float[T, D]";
  if (head != Head::logits) inputs += ", labels i32[T]";
  if (head == Head::loss) inputs += ", weights float[T]";
  if (head == Head::preference)
    inputs += ", reference float[T], weights float[T], pairs i32[T], pair_weight float[]";
  b.norm("norm", d.names.final_norm, "[D]");
  b.param({"lm_head", "[V, D]", "", "", "", ""});
  const auto [op, operands] = b.norm_call("x", "norm");
  b.line("n", op, operands, b.norm_attributes());
  Chain logits(b, "logits", "n");
  logits.then("plain", "matmul", "lm_head", "trans_b=1");
  if (d.logits_cap != 0) logits.then("capped", "soft_cap", "", "cap=" + number_text(d.logits_cap));
  logits.finish();
  std::string result = "logits";
  if (head != Head::logits) {
    b.line("lse", "row_lse", "logits");
    b.line("picked", "pick", "logits, labels");
    b.line("nll", "sub", "lse, picked");
    result = "nll";
  }
  if (head == Head::loss) {
    b.line("loss", "dot", "weights, nll");
    result = "loss";
  }
  if (head == Head::preference) {
    result = "loss, margin, right";
    b.line(result, "preference_loss", "nll, reference, weights, pairs, pair_weight",
           "beta=0.1 label_smoothing=0 variant=0");
  }
  return fmt::format("block head ({}) ({}) {{\n{}  return {}\n}}\n", inputs, formals(b.params),
                     b.lines, result);
}

std::string extents(const Decoder& d, const BatchShape& batch) {
  std::string t = fmt::format("extent T = {} by {}\nextent D = {}\n",
                              batch.slots * batch.slot_tokens, batch.slot_tokens, d.width);
  t += fmt::format("extent H = {} by {}\nextent G = {} by {}\n", d.heads * d.head_size, d.head_size,
                   d.kv_heads * d.head_size, d.head_size);
  if (d.qk_norm == Decoder::QkNorm::head) t += fmt::format("extent K = {}\n", d.head_size);
  t += fmt::format("extent F = {}\nextent V = {}\n", d.feed_forward, d.vocabulary);
  if (d.positions > 0) t += fmt::format("extent P = {}\n", d.positions);
  return t;
}

std::string norm_params(const Decoder& d, const std::string& module) {
  std::string t =
      fmt::format("param {}.weight [D] {}\n", module, d.norm_offset == 1 ? "zeros" : "ones");
  if (d.layer_norm) t += fmt::format("param {}.bias [D] zeros\n", module);
  return t;
}

std::string names_of(const Decoder& d, const std::vector<LayerParam>& params, int64_t layer) {
  std::string s;
  for (const LayerParam& p : params)
    s += fmt::format("{}{}{}.{}.{}", s.empty() ? "" : ", ", d.names.layer, layer, p.module, p.part);
  return s;
}

std::string layer_params(const Decoder& d, const std::vector<LayerParam>& params, int64_t layer) {
  std::string t;
  for (const LayerParam& p : params) {
    const std::string prefix = fmt::format("{}{}.", d.names.layer, layer);
    const std::string file = p.file.empty() ? "" : fmt::format(" file {}{}", prefix, p.file);
    t += fmt::format("param {}{}.{} {} {}{}\n", prefix, p.module, p.part, p.dims, p.init, file);
  }
  return t;
}

std::string uses(const Decoder& d, const std::vector<LayerParam>& params, Head head) {
  const bool learned = d.positions > 0;
  std::string t = learned ? fmt::format("h0 = embed (tokens, positions) ({}.weight, {}.weight)",
                                        d.names.embedding, d.names.positions)
                          : fmt::format("h0 = embed (tokens) ({}.weight)", d.names.embedding);
  t += " as embed\n";
  for (int64_t l = 0; l < d.layers; ++l) {
    const size_t kind = d.kind_of_layer[static_cast<size_t>(l)];
    t += fmt::format("h{} = {} (h{}{}, sequences) ({}) as layers.{}\n", l + 1, block_name(d, kind),
                     l, d.kinds[kind].rope ? ", positions" : "", names_of(d, params, l), l);
  }
  struct Wanted {
    const char *values, *inputs, *lines;
  };
  const auto wanted = [&]() -> Wanted {
    switch (head) {
      case Head::loss:
        return {"loss", ", labels, weights", "loss loss\n"};
      case Head::logits:
        return {"logits", "", "logits logits\n"};
      case Head::token_loss:
        return {"nll", ", labels", "result token_loss nll\n"};
      case Head::preference:
        break;
    }
    return {"loss, margin, right", ", labels, reference, weights, pairs, pair_weight",
            "loss loss\nresult preference_margin margin\nresult preference_right right\n"};
  }();
  const std::string norm = d.layer_norm ? fmt::format("{0}.weight, {0}.bias", d.names.final_norm)
                                        : d.names.final_norm + ".weight";
  t += fmt::format("{} = head (h{}{}) ({}, {}.weight) as head\n", wanted.values, d.layers,
                   wanted.inputs, norm, d.tied ? d.names.embedding : d.names.head);
  return t + wanted.lines;
}

}  // namespace

std::string decoder_text(const Decoder& d, const BatchShape& batch, Head head) {
  std::string t = extents(d, batch);
  t += "input tokens i32[T]\ninput positions i32[T]\ninput sequences i32[T]\n";
  if (head != Head::logits) t += "input labels i32[T]\n";
  if (head == Head::preference) t += "input reference float[T]\n";
  if (head == Head::loss || head == Head::preference) t += "input weights float[T]\n";
  if (head == Head::preference) t += "input pairs i32[T]\ninput pair_weight float[]\n";
  // Kinds of layers differ in attributes alone, so all have the same parameters.
  std::string blocks;
  std::vector<LayerParam> params;
  for (size_t kind = 0; kind < d.kinds.size(); ++kind) {
    BlockWriter b(d);
    write_attention(d, d.kinds[kind], b);
    write_mlp(d, b);
    blocks +=
        fmt::format("block {} (x float[T, D]{}, sequences i32[T])\n    ({}) {{\n{}  return y\n}}\n",
                    block_name(d, kind), d.kinds[kind].rope ? ", positions i32[T]" : "",
                    formals(b.params), b.lines);
    params = std::move(b.params);
  }
  const std::string drawn = "normal " + number_text(d.deviation);
  t += fmt::format("param {}.weight [V, D] {}\n", d.names.embedding, drawn);
  if (d.positions > 0) t += fmt::format("param {}.weight [P, D] {}\n", d.names.positions, drawn);
  for (int64_t l = 0; l < d.layers; ++l) t += layer_params(d, params, l);
  t += norm_params(d, d.names.final_norm);
  if (!d.tied) t += fmt::format("param {}.weight [V, D] {}\n", d.names.head, drawn);
  return t + embed_block(d) + blocks + head_block(d, head) + uses(d, params, head);
}

}  // namespace plait
