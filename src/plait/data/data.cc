#include "plait/data/data.h"

#include <algorithm>

#include "plait/base/digest.h"
#include "plait/base/text.h"
#include "plait/data/split.h"
#include "plait/data/tokenise.h"

namespace plait {

namespace {

constexpr int64_t kMaxSlotTokens = 1 << 20;

// A source, or the held-out part of one.
struct Part {
  std::shared_ptr<TokenStore> store;
  std::unique_ptr<Packing> packing;
};

void check(const DataConfig& c) {
  if (c.slot_tokens < 2 || c.slot_tokens > kMaxSlotTokens)
    fail("slots of {} tokens; needs 2 to {}", c.slot_tokens, kMaxSlotTokens);
  if (c.train.empty()) fail("no training data");
  if (c.vocabulary < 0 || c.vocabulary > INT32_MAX) fail("a vocabulary of {}", c.vocabulary);
  if (c.packing != "auto") parse_pack_mode(c.packing);
}

// How a source is packed, decided by what it holds unless it is asked for.
PackMode pack_mode(const DataConfig& c, const TokenStore& store, const SourceReport& r) {
  const PackMode mode = c.packing != "auto" ? parse_pack_mode(c.packing)
                        : r.examples        ? PackMode::whole
                                            : PackMode::packed;
  return store.paired() && mode == PackMode::packed ? PackMode::whole : mode;
}

// Nothing to learn from at all would be a run of losses of 0.
void check_learnable(const DataConfig& c, const TokenStore& store, const SourceReport& r) {
  if (r.unlearnable_documents < store.documents()) return;
  if (c.learn_all && !store.paired() && store.tokens() > store.documents()) return;
  if (r.examples)
    fail(
        "'{}': nothing to learn: none of {} examples has an answer (are all completions, or the "
        "assistant's messages, empty?){}",
        r.path, r.documents, store.paired() ? "" : "; learning prompts as well must be asked for");
  fail("'{}': nothing to learn: none of {} documents has two tokens", r.path, r.documents);
}

std::vector<double> weights_of(const std::vector<DataSource>& sources) {
  std::vector<double> weights;
  for (const DataSource& s : sources) weights.push_back(s.weight);
  return weights;
}

std::string order_text(const DataConfig& c) {
  return fmt::format("{} {} {} {} {}", c.slot_tokens, c.seed, number_text(c.held_out), c.learn_all,
                     c.long_pairs);
}

void append_tokens(const Part& part, std::vector<int32_t>& all) {
  for (const PackUnit& u : part.packing->units()) {
    const size_t old = all.size();
    all.resize(old + static_cast<size_t>(u.end - u.begin));
    std::vector<uint8_t> learn(all.size() - old);
    part.store->read(u.begin, u.end, all.data() + old, learn.data());
  }
}

}  // namespace

int64_t Sample::labelled() const { return std::count(learn.begin(), learn.end(), 1); }

struct Data::Impl {
  DataConfig config;
  Mixture mixture;
  DataReport report;
  std::vector<Part> training, validation;
  std::vector<int64_t> validation_starts{0};  // samples before each part; all at the end
  bool paired = false;
  int32_t pad = 0;
  int64_t vocabulary = 0;
  uint64_t digest = 0;

  explicit Impl(const DataConfig& c) : config(c), mixture(weights_of(c.train)) {}

  void open(const Tokenizer& tokenizer, const ChatRenderer& renderer, const DataProgress& progress);
  void add_source(size_t index, const std::shared_ptr<TokenStore>& store, const Split& split,
                  SourceReport& r);
  Split split_source(const TokenStore& store, bool may_cut, double share, SourceReport& r) const;
  void note_split(const Packing& packing, const std::vector<PackUnit>& units, SourceReport& r);
  void add_validation(const std::shared_ptr<TokenStore>& store, const Split& split,
                      SourceReport& r);
  Sample fill(const Part& part, int64_t source, int64_t epoch, int64_t index) const;
  void fill_run(const Part& part, const Stretch& run, size_t number, size_t at,
                Sample& sample) const;
  Batch batch(const BatchLayout& layout, std::vector<Sample>& samples, int64_t labelled) const;
  Sample empty_sample() const;
  void check_layout(const BatchLayout& layout) const;
};

Data::Data(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Data::~Data() = default;

// ---- opening ------------------------------------------------------------------------------

std::unique_ptr<Data> Data::open(const DataConfig& config, const Tokenizer& tokenizer,
                                 const ChatRenderer& renderer, const DataProgress& progress) {
  check(config);
  auto impl = std::make_unique<Impl>(config);
  impl->open(tokenizer, renderer, progress);
  return std::unique_ptr<Data>(new Data(std::move(impl)));
}

void Data::Impl::open(const Tokenizer& tokenizer, const ChatRenderer& renderer,
                      const DataProgress& progress) {
  vocabulary = config.vocabulary > 0 ? config.vocabulary : tokenizer.vocabulary();
  pad = tokenizer.pad() && *tokenizer.pad() < vocabulary ? *tokenizer.pad() : 0;
  const auto store_of = [&](const DataSource& source, SourceReport& r) {
    std::shared_ptr<TokenStore> store =
        open_store(source, config, tokenizer, renderer, progress, r, report.notes);
    const bool first = training.empty() && validation.empty();
    if (!first && store->paired() != paired)
      fail("'{}': {} among {}", source.path, store->paired() ? "preference pairs" : "text",
           paired ? "preference pairs" : "text");
    paired = store->paired();
    check_learnable(config, *store, r);
    r.packing = pack_mode_name(pack_mode(config, *store, r));
    digest = plait::digest(fmt::format("{} {} {}", digest, store->content(), r.packing));
    return store;
  };
  digest = plait::digest(order_text(config));
  for (size_t i = 0; i < config.train.size(); ++i) {
    SourceReport r;
    const auto store = store_of(config.train[i], r);
    const double share = config.validation.empty() ? config.held_out : 0;
    const bool text = r.format.starts_with("text") || r.format.starts_with("megatron");
    const Split split = split_source(*store, text && r.packing == "packed", share, r);
    add_source(i, store, split, r);
    if (!split.validation.empty()) add_validation(store, split, r);
    digest = plait::digest(fmt::format("{} {}", digest, number_text(r.weight)));
    report.training.push_back(std::move(r));
  }
  for (const DataSource& source : config.validation) {
    SourceReport r;
    const auto store = store_of(source, r);
    Split split = split_source(*store, false, 0, r);
    std::swap(split.training, split.validation);
    add_validation(store, split, r);
    report.validation.push_back(std::move(r));
  }
}

Split Data::Impl::split_source(const TokenStore& store, bool may_cut, double share,
                               SourceReport& r) const {
  UnitsReport units;
  std::vector<PackUnit> whole = whole_units(store, config.slot_tokens, config.long_pairs, units);
  r.truncated_pairs = units.truncated_pairs;
  r.dropped_pairs = units.dropped_pairs;
  for (const PackUnit& u : whole) r.cut_documents += u.end - u.begin > config.slot_tokens ? 1 : 0;
  if (whole.empty())
    fail("'{}': {}", r.path,
         store.paired() ? fmt::format("none of {} pairs fits into a slot of {} tokens", r.documents,
                                      config.slot_tokens)
                        : "no tokens");
  return hold_out(std::move(whole), share, config.slot_tokens, may_cut, paired, r.path);
}

// Packing examples end to end is allowed, but said: what follows a cut has lost its prompt.
void Data::Impl::note_split(const Packing& packing, const std::vector<PackUnit>& units,
                            SourceReport& r) {
  if (!r.examples || r.packing != "packed") return;
  const int64_t split = packing.split_units(0);
  r.split_examples += split;
  if (split == 0) return;
  const std::string note = fmt::format(
      "'{}': {} of {} examples are cut where a slot ends, and what follows is without "
      "its prompt; packing 'whole' cuts none that fits a slot",
      r.path, split, units.size());
  if (std::find(report.notes.begin(), report.notes.end(), note) == report.notes.end())
    report.notes.push_back(note);  // once, where a source is validated on as well
}

void Data::Impl::add_source(size_t index, const std::shared_ptr<TokenStore>& store,
                            const Split& split, SourceReport& r) {
  const PackMode mode = parse_pack_mode(r.packing);
  auto packing = std::make_unique<Packing>(split.training, mode, config.slot_tokens, paired,
                                           PackOrder{config.seed, static_cast<int64_t>(index)});
  r.training_documents = static_cast<int64_t>(split.training.size()) / (paired ? 2 : 1);
  r.training_tokens = packing->tokens();
  if (mode == PackMode::packed && packing->tokens() < config.slot_tokens)
    fail(
        "'{}' has {} training tokens, less than one slot of {}; make slots shorter, or pack "
        "'whole' "
        "documents",
        r.path, packing->tokens(), config.slot_tokens);
  note_split(*packing, split.training, r);
  r.slots = packing->slots();
  r.padding = 1 - static_cast<double>(packing->tokens()) /
                      (static_cast<double>(r.slots) * static_cast<double>(config.slot_tokens));
  r.weight = mixture.share(static_cast<int64_t>(index));
  training.push_back({store, std::move(packing)});
}

void Data::Impl::add_validation(const std::shared_ptr<TokenStore>& store, const Split& split,
                                SourceReport& r) {
  auto packing = std::make_unique<Packing>(split.validation, parse_pack_mode(r.packing),
                                           config.slot_tokens, paired, std::nullopt);
  note_split(*packing, split.validation, r);
  r.validation_documents = static_cast<int64_t>(split.validation.size()) / (paired ? 2 : 1);
  r.validation_tokens = packing->tokens();
  validation_starts.push_back(validation_starts.back() + packing->slots());
  validation.push_back({store, std::move(packing)});
}

// ---- samples ------------------------------------------------------------------------------

Sample Data::Impl::empty_sample() const {
  Sample s;
  const auto n = static_cast<size_t>(config.slot_tokens);
  s.tokens.assign(n, pad);
  for (auto* v : {&s.positions, &s.sequences, &s.labels, &s.pairs}) v->assign(n, 0);
  s.learn.assign(n, 0);
  for (size_t i = 0; i < n; ++i) s.positions[i] = static_cast<int32_t>(i);
  return s;
}

void Data::Impl::fill_run(const Part& part, const Stretch& run, size_t number, size_t at,
                          Sample& sample) const {
  const auto n = static_cast<size_t>(run.tokens());
  const int64_t end = std::min(run.end + 1, run.unit_end);  // one more: the last label
  std::vector<int32_t> ids(n + 1);
  std::vector<uint8_t> learn(n + 1);
  part.store->read(run.begin, end, ids.data(), learn.data());
  for (const int32_t id : ids)
    if (id < 0 || id >= vocabulary)
      fail("'{}': id {} in document {}; the file has changed since it was checked",
           part.store->path(), id, run.document);
  const bool all = config.learn_all && !paired;
  for (size_t i = 0; i < n; ++i) {
    sample.tokens[at + i] = ids[i];
    sample.positions[at + i] = static_cast<int32_t>(i);
    sample.sequences[at + i] = static_cast<int32_t>(number);
    if (paired) sample.pairs[at + i] = static_cast<int32_t>(number) + 1;
    if (run.begin + static_cast<int64_t>(i) + 1 >= end) continue;
    sample.labels[at + i] = ids[i + 1];
    sample.learn[at + i] = all || learn[i + 1] != 0 ? 1 : 0;
  }
  sample.pieces.push_back(
      {run.document, run.begin - part.store->begin(run.document), run.tokens()});
}

Sample Data::Impl::fill(const Part& part, int64_t source, int64_t epoch, int64_t index) const {
  Sample sample = empty_sample();
  sample.source = source;
  sample.epoch = epoch;
  size_t at = 0;
  const std::vector<Stretch> runs = part.packing->slot(epoch, index, &sample.slot);
  for (size_t r = 0; r < runs.size(); ++r) {
    fill_run(part, runs[r], r, at, sample);
    at += static_cast<size_t>(runs[r].tokens());
  }
  for (size_t i = at, first = at; i < sample.tokens.size(); ++i) {
    sample.positions[i] = static_cast<int32_t>(i - first);
    sample.sequences[i] = static_cast<int32_t>(runs.size());
  }
  return sample;
}

bool Data::paired() const { return impl_->paired; }

Sample Data::sample(int64_t index) const {
  if (index < 0) fail("sample {}; samples count from 0", index);
  const auto [source, nth] = impl_->mixture.at(index);
  const Part& part = impl_->training[static_cast<size_t>(source)];
  const int64_t slots = part.packing->slots();
  return impl_->fill(part, source, nth / slots, nth % slots);
}

int64_t Data::validation_samples() const { return impl_->validation_starts.back(); }

Sample Data::validation_sample(int64_t index) const {
  const auto& starts = impl_->validation_starts;
  PLAIT_CHECK(index >= 0 && index < starts.back(), "validation sample {} of {}", index,
              starts.back());
  const auto next = std::upper_bound(starts.begin(), starts.end(), index);
  const int64_t part = next - starts.begin() - 1;
  return impl_->fill(impl_->validation[static_cast<size_t>(part)], part, 0,
                     index - starts[static_cast<size_t>(part)]);
}

// ---- batches ------------------------------------------------------------------------------

void Data::Impl::check_layout(const BatchLayout& layout) const {
  if (layout.slot_tokens != config.slot_tokens)
    fail("the model has slots of {} tokens, the data slots of {}", layout.slot_tokens,
         config.slot_tokens);
  if (layout.microbatches < 1 || layout.slots < 1)
    fail("{} micro-batches of {} slots", layout.microbatches, layout.slots);
}

Batch Data::Impl::batch(const BatchLayout& layout, std::vector<Sample>& samples,
                        int64_t labelled) const {
  const double weight = paired ? 1 : labelled > 0 ? 1 / static_cast<double>(labelled) : 0;
  const std::vector<int64_t> dims{layout.slots * layout.slot_tokens};
  Batch batch;
  for (int64_t m = 0; m < layout.microbatches; ++m) {
    HostTensors tensors;
    const auto put = [&](const char* name, std::vector<int32_t> Sample::*member) {
      HostTensor t(Dtype::i32, dims);
      for (int64_t s = 0; s < layout.slots; ++s) {
        const auto& from = samples[static_cast<size_t>(m * layout.slots + s)].*member;
        std::copy(from.begin(), from.end(), t.as<int32_t>() + s * layout.slot_tokens);
      }
      tensors.emplace(name, std::move(t));
    };
    for (int64_t s = 0; s < layout.slots; ++s)  // sequences get numbers of the micro-batch
      for (int32_t& id : samples[static_cast<size_t>(m * layout.slots + s)].sequences)
        id += static_cast<int32_t>(s * layout.slot_tokens);
    put("tokens", &Sample::tokens);
    put("positions", &Sample::positions);
    put("sequences", &Sample::sequences);
    put("labels", &Sample::labels);
    if (paired) put("pairs", &Sample::pairs);
    HostTensor weights(layout.dtype, dims);
    dispatch_float(layout.dtype, [&]<class T>() {
      T* to = weights.as<T>();
      for (int64_t s = 0; s < layout.slots; ++s)
        for (const uint8_t l : samples[static_cast<size_t>(m * layout.slots + s)].learn)
          *to++ = l != 0 ? static_cast<T>(weight) : T{0};
    });
    tensors.emplace("weights", std::move(weights));
    batch.microbatches.push_back(std::move(tensors));
  }
  return batch;
}

Batch Data::training_batch(const BatchLayout& layout, int64_t step, StepFacts* facts) const {
  impl_->check_layout(layout);
  if (step < 0) fail("step {}; steps count from 0", step);
  const int64_t first = checked_mul(step, layout.samples());
  StepFacts f;
  std::vector<Sample> samples;
  for (int64_t i = 0; i < layout.samples(); ++i) {
    samples.push_back(sample(first + i));
    f.labelled += samples.back().labelled();
    for (const Piece& p : samples.back().pieces) f.tokens += p.tokens;
    if (paired()) f.pairs += static_cast<int64_t>(samples.back().pieces.size()) / 2;
  }
  for (size_t s = 0; s < impl_->training.size(); ++s)
    f.epochs.push_back(static_cast<double>(impl_->mixture.count(static_cast<int64_t>(s),
                                                                first + layout.samples())) /
                       static_cast<double>(impl_->training[s].packing->slots()));
  const int64_t labelled = f.labelled;
  if (facts != nullptr) *facts = std::move(f);
  return impl_->batch(layout, samples, labelled);
}

int64_t Data::validation_batches(const BatchLayout& layout) const {
  return (validation_samples() + layout.samples() - 1) / layout.samples();
}

Batch Data::validation_batch(const BatchLayout& layout, int64_t index, int64_t& labelled) const {
  impl_->check_layout(layout);
  PLAIT_CHECK(index >= 0 && index < validation_batches(layout), "validation batch {} of {}", index,
              validation_batches(layout));
  labelled = 0;
  std::vector<Sample> samples;
  for (int64_t i = index * layout.samples(); i < (index + 1) * layout.samples(); ++i) {
    samples.push_back(i < validation_samples() ? validation_sample(i) : impl_->empty_sample());
    labelled += samples.back().labelled();
  }
  return impl_->batch(layout, samples, labelled);
}

int64_t Data::validation_labels(const BatchLayout& layout, int64_t batches) const {
  const int64_t samples = std::min(validation_samples(), checked_mul(batches, layout.samples()));
  int64_t labelled = 0;
  for (int64_t i = 0; i < samples; ++i) labelled += validation_sample(i).labelled();
  return labelled;
}

// ---- the rest -----------------------------------------------------------------------------

std::vector<int32_t> Data::training_tokens() const {
  std::vector<int32_t> all;
  for (const Part& p : impl_->training) append_tokens(p, all);
  return all;
}

std::vector<int32_t> Data::validation_tokens() const {
  std::vector<int32_t> all;
  for (const Part& p : impl_->validation) append_tokens(p, all);
  return all;
}

int64_t Data::slot_tokens() const { return impl_->config.slot_tokens; }
uint64_t Data::digest() const { return impl_->digest; }
const DataReport& Data::report() const { return impl_->report; }

}  // namespace plait
