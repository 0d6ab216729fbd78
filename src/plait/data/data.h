// Data: files of text, JSON lines or Megatron's token files as batches of training.
//
//   DataConfig config;
//   config.train = {{"books/"}, {"chat.jsonl", "auto", 0.3}};
//   config.slot_tokens = 1024;
//   const auto data = Data::open(config, tokenizer, renderer, progress);
//   const BatchLayout layout = batch_layout(model, plan.microbatches);
//   StepFacts facts;
//   Batch batch = data->training_batch(layout, step, &facts);   // then add batch.step["hyper"]
//
// A sample fills one slot of slot_tokens tokens. What sample i of the whole training holds is a
// function of (files, configuration, seed, i) alone, and step s consists of the samples
// s * layout.samples() and on. So ranks, micro-batches and the point of resuming cannot change
// the order of data: to resume is to go on with another step number.
//
// All const functions may be called by several threads at once.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plait/data/batch.h"

namespace plait {

class Tokenizer;  // tokens/tokenizer.h

struct DataSource {
  std::string path;             // a file, a folder, a pattern with * or ?, a Megatron prefix
  std::string format = "auto";  // auto, text, jsonl, megatron
  double weight = 1;            // its share of the samples, relative to the others'
};

struct DataConfig {
  std::vector<DataSource> train;
  std::vector<DataSource> validation;  // empty: `held_out` of each source of train
  double held_out = 0.05;              // 0: no validation
  int64_t slot_tokens = 0;
  int64_t vocabulary = 0;  // of the model; 0: the tokenizer's
  // packed: documents end to end, cut where a slot ends. whole: cut only when longer than a slot.
  // padded: one document in a slot. Preference pairs are never cut, so packed means whole there.
  // auto: of each source by itself, whole for examples (prompts and completions, chats, pairs),
  // whose answers would else lose their prompts; packed for texts and Megatron's files.
  std::string packing = "auto";
  uint64_t seed = 1;
  bool learn_all = false;       // also what is masked otherwise: prompts, other roles' messages
  bool skip_bad_lines = false;  // of JSON lines; counted in the report. Otherwise an error
  bool add_special = true;      // what the tokenizer puts around a text (bos); chat: the template's
  bool add_eos = true;          // after each document, where the tokenizer has one; chat: template
  bool parse_special = true;    // special tokens spelt out in a text are taken for these tokens
  std::string separator;        // a text file is split into documents at it; empty: one document
  std::string long_pairs = "truncate";  // or drop: preference pairs longer than a slot
  std::string cache_folder;             // of tokenised sources; empty: beside each source
  bool cache = true;                    // false: tokenised into a temporary file
  int threads = 0;                      // for tokenising; 0: one for each CPU, at most 8
};

// The chat template of a model; data/ knows nothing of how it is written.
struct ChatRenderer {
  using Json = nlohmann::ordered_json;  // templates may print objects in the order of their keys
  // messages: a list; tools: a list or null.
  std::function<std::string(const Json& messages, const Json& tools, bool add_generation_prompt)>
      render;           // null: chat messages are refused
  uint64_t digest = 0;  // of the template's text, so that caches notice another one
};

// What is being done ("tokenising 'x.jsonl'"), bytes done, bytes in all. Never called by two
// threads at once.
using DataProgress = std::function<void(const std::string& what, int64_t done, int64_t total)>;

// A run of tokens of one document in a slot.
struct Piece {
  int64_t document = 0;  // of the source; pairs: chosen 2p, rejected 2p + 1
  int64_t begin = 0;     // first token, counted from the start of the document
  int64_t tokens = 0;
  bool operator==(const Piece&) const = default;
};

struct Sample {
  int64_t source = 0, epoch = 0, slot = 0;  // slot: of the epoch, before they are shuffled
  std::vector<Piece> pieces;
  // slot_tokens each; what no piece covers is padding: a sequence of its own, learn 0.
  std::vector<int32_t> tokens, positions, sequences, labels, pairs;
  std::vector<uint8_t> learn;  // 1: the label counts
  int64_t labelled() const;
};

// Of one training step.
struct StepFacts {
  int64_t labelled = 0;  // tokens that count. 0: all weights are 0, and there is nothing to learn
  int64_t tokens = 0;    // that are no padding
  int64_t pairs = 0;
  std::vector<double> epochs;  // of each source, passed through when the step ends
};

struct SourceReport {
  std::string path, format;  // "jsonl: chat messages"
  std::string packing;       // as used: packed, whole or padded; empty: none yet
  bool examples = false;     // an answer is to be learned from its prompt
  std::string cache;  // "read from ...", "written to ...", "rebuilt ...: the tokenizer changed"
  int64_t files = 0, documents = 0, tokens = 0, learnable = 0;  // documents: pairs count as one
  int64_t unlearnable_documents = 0, empty_documents = 0, skipped_lines = 0;
  int64_t training_documents = 0, training_tokens = 0, validation_documents = 0,
          validation_tokens = 0;
  double weight = 0;           // as used; of all training samples
  int64_t slots = 0;           // of an epoch
  int64_t split_examples = 0;  // cut where a slot ends, in the first epoch
  int64_t cut_documents = 0, truncated_pairs = 0, dropped_pairs = 0;
  double padding = 0;  // share of the slots of an epoch
};

struct DataReport {
  std::vector<SourceReport> training, validation;  // validation: only where sources of its own
  std::vector<std::string> notes;
};

class Data {
 public:
  // Tokenises what has no cache yet. Throws Error for whatever is wrong with files or config.
  // `tokenizer` is not used afterwards.
  static std::unique_ptr<Data> open(const DataConfig& config, const Tokenizer& tokenizer,
                                    const ChatRenderer& renderer = {},
                                    const DataProgress& progress = {});
  ~Data();

  bool paired() const;  // preference pairs; weights are then 0 or 1, no mean
  Sample sample(int64_t index) const;
  // Steps count from 0. Weights are 1 / (learnable tokens of the step): the loss is a mean.
  Batch training_batch(const BatchLayout& layout, int64_t step, StepFacts* facts = nullptr) const;

  // Held-out text in order, every token once; in the last batch empty slots have weight 0.
  int64_t validation_samples() const;
  Sample validation_sample(int64_t index) const;
  int64_t validation_batches(const BatchLayout& layout) const;
  Batch validation_batch(const BatchLayout& layout, int64_t index, int64_t& labelled) const;
  // Learnable tokens of the first `batches` validation batches.
  int64_t validation_labels(const BatchLayout& layout, int64_t batches) const;

  // All tokens in the order of documents, for yardsticks that fit into memory.
  std::vector<int32_t> training_tokens() const;
  std::vector<int32_t> validation_tokens() const;

  int64_t slot_tokens() const;
  // Of everything that decides what sample i holds. A run resumed with another digest would go on
  // with other data.
  uint64_t digest() const;
  const DataReport& report() const;

 private:
  struct Impl;
  explicit Data(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace plait
