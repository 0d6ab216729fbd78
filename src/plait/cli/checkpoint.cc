// plait checkpoint inspect FOLDER, plait checkpoint export FOLDER OUT.
#include "plait/io/checkpoint.h"

#include <algorithm>
#include <memory>

#include "plait/cli/commands.h"
#include "plait/cli/common.h"
#include "plait/cli/export.h"
#include "plait/io/files.h"
#include "plait/report/table.h"

namespace plait {

namespace {

struct InspectOptions {
  std::string folder;
  int64_t step = -1;  // all
  bool json = false, verify = false;
};

struct ExportOptions {
  std::string folder, out, save_dtype;
  int64_t step = -1;
};

std::string sized(int64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  if (bytes < 10'000'000'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
  return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
}

std::string states(const CheckpointInfo& c) {
  std::vector<std::string> words;
  for (const auto& [name, g] : c.groups)
    words.push_back(fmt::format("{} {} {}", g.count, name, fmt::join(g.dtypes, "/")));
  return fmt::format("{}", fmt::join(words, ", "));
}

void print_list(const std::vector<CheckpointInfo>& all, bool verified) {
  Table table({"step", "size", "saved (UTC)", "states", "condition"}, "");
  for (const CheckpointInfo& c : all) {
    const bool whole = c.damage.empty();
    table.row({std::to_string(c.step), sized(c.bytes), whole ? c.manifest.saved : "-",
               whole ? states(c) : "-",
               !whole     ? "damaged"
               : verified ? "checksums right"
                          : "complete"});
  }
  fmt::print("{}", table.text());
}

void print_one(const CheckpointInfo& c, bool verified) {
  fmt::print("step {} in '{}', saved {}\n", c.step, c.folder, c.manifest.saved);
  Table groups({"states", "tensors", "elements", "bytes", "types"});
  for (const auto& [name, g] : c.groups)
    groups.row({name, grouped(g.count), grouped(g.elements), grouped(g.bytes),
                fmt::format("{}", fmt::join(g.dtypes, ", "))});
  fmt::print("{}", groups.text());
  Table files({"file", "bytes", "XXH3-128"});
  for (const ManifestFile& f : c.manifest.files) files.row({f.name, grouped(f.bytes), f.checksum});
  fmt::print("{}", files.text());
  nlohmann::ordered_json trainer = c.manifest.trainer;
  if (trainer.is_object()) trainer.erase("description");  // config.json whole; --json has it
  fmt::print("{}", paragraph("trainer: " + trainer.dump(), "  "));
  if (verified) fmt::print("  all checksums are right\n");
}

nlohmann::ordered_json as_json(const CheckpointInfo& c) {
  nlohmann::ordered_json j;
  j["step"] = c.step;
  j["folder"] = c.folder;
  j["bytes"] = c.bytes;
  j["damaged"] = !c.damage.empty();
  if (!c.damage.empty()) {
    j["damage"] = c.damage;
    return j;
  }
  j["saved"] = c.manifest.saved;
  j["trainer"] = c.manifest.trainer;
  j["states"] = nlohmann::ordered_json::object();
  for (const auto& [name, g] : c.groups)
    j["states"][name] = {
        {"tensors", g.count}, {"elements", g.elements}, {"bytes", g.bytes}, {"dtypes", g.dtypes}};
  j["files"] = nlohmann::ordered_json::array();
  for (const ManifestFile& f : c.manifest.files)
    j["files"].push_back({{"name", f.name}, {"bytes", f.bytes}, {"xxh3_128", f.checksum}});
  return j;
}

void run_inspect(const InspectOptions& o) {
  const CheckpointReader reader(o.folder);
  if (!is_folder(o.folder)) fail("'{}': there is no such folder", o.folder);
  std::vector<int64_t> steps = reader.all_steps();
  if (steps.empty()) fail("'{}': there are no checkpoints in it (step-00000100, ...)", o.folder);
  if (o.step >= 0) {
    if (std::find(steps.begin(), steps.end(), o.step) == steps.end())
      fail("'{}': there is no checkpoint of step {}; there are {}", o.folder, o.step,
           fmt::join(steps, ", "));
    steps = {o.step};
  }
  std::vector<CheckpointInfo> all;
  for (const int64_t step : steps) all.push_back(reader.inspect(step, o.verify));
  const bool damaged = std::any_of(all.begin(), all.end(),
                                   [](const CheckpointInfo& c) { return !c.damage.empty(); });
  if (o.json) {
    nlohmann::ordered_json j = nlohmann::ordered_json::array();
    for (const CheckpointInfo& c : all) j.push_back(as_json(c));
    fmt::print("{}\n", j.dump(2));
  } else if (o.step >= 0 && !damaged) {
    print_one(all[0], o.verify);
  } else {
    print_list(all, o.verify);
    for (const CheckpointInfo& c : all)
      if (!c.damage.empty())
        fmt::print("{}", paragraph(fmt::format("step {}: {}", c.step, c.damage)));
  }
  if (damaged && o.verify) throw CLI::RuntimeError(1);
}

}  // namespace

void add_checkpoint(CLI::App& app) {
  CLI::App* group = app.add_subcommand("checkpoint", "the checkpoints of a training run");
  group->require_subcommand(1);
  CLI::App* command = group->add_subcommand("inspect", "what a folder of checkpoints holds");
  auto o = std::make_shared<InspectOptions>();
  command->add_option("FOLDER", o->folder, "the folder with step-00000100 and so on")
      ->check(a_path())
      ->required();
  command->add_option("--step", o->step, "one of them, in full")->check(whole_number(0, INT64_MAX));
  command->add_flag("--json", o->json, "as JSON");
  command->add_flag("--verify", o->verify,
                    "read every byte and check the checksums; exit code 1 for a damaged one");
  command->callback([o] { run_inspect(*o); });
  CLI::App* to = group->add_subcommand("export", "make a model's or an adapter's folder of one");
  auto e = std::make_shared<ExportOptions>();
  to->add_option("FOLDER", e->folder, "the folder of checkpoints")->check(a_path())->required();
  to->add_option("OUT", e->out, "folder to save in")->check(a_path())->required();
  to->add_option("--step", e->step, "left out: the last one that is whole")
      ->check(whole_number(0, INT64_MAX));
  add_save_dtype(*to, e->save_dtype);
  to->callback([e] { export_checkpoint(e->folder, e->step, e->out, save_dtype(e->save_dtype)); });
}

}  // namespace plait
