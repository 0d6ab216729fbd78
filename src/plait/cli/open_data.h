// Data and tokenizer as the commands ask for them: shared by train, eval and data.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "plait/data/data.h"
#include "plait/tokens/chat_template.h"
#include "plait/tokens/tokenizer.h"

namespace plait {

struct DataFlags {
  std::vector<std::string> train, validation;
  std::vector<double> weights;  // parallel to train; empty: all 1
  std::string format = "auto";
  std::string tokenizer;  // empty: the model folder's, else bytes
  DataConfig config;
};
void add_data_options(CLI::App& command, DataFlags& options);

struct Text {
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat;
  std::string from;  // where it was found, for people
  std::map<std::string, std::string> special_tokens;
  ChatRenderer renderer() const;  // holds on to *this
};
// The tokenizer that is asked for, or else the one in the model's folder, or else bytes if the
// vocabulary has 256 ids. Throws Error when it makes ids that the model does not have.
Text open_text(const std::string& tokenizer, const std::string& model, int64_t vocabulary);

// Opens with a progress line on `out`.
std::unique_ptr<Data> open_data(const DataFlags& options, const Text& text, int64_t slot_tokens,
                                int64_t vocabulary, uint64_t seed, std::FILE* out);

}  // namespace plait
