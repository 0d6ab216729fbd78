#include "plait/tokens/post_process.h"

#include <optional>

#include "plait/tokens/json_section.h"

namespace plait {

using nlohmann::json;

namespace {

// The ids of one entry of "special_tokens".
std::vector<int32_t> special_ids(const json& value, int64_t ids, const std::string& where) {
  Section s(value, where);
  s.ignore("id");
  s.ignore("tokens");  // the ids again, as text
  std::vector<int32_t> result;
  for (const json& id : s.array("ids")) {
    const bool fits = id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(ids);
    if (!fits)
      s.error("ids", "{}: expected ids below {}", id.is_number() ? id.dump() : json_kind(id), ids);
    result.push_back(id.get<int32_t>());
  }
  s.finish();
  return result;
}

PostProcess read_template(Section& s, int64_t ids) {
  s.ignore("pair");  // two texts at once; plait encodes one
  PostProcess result;
  bool seen = false;
  Section special(s.value("special_tokens"), s.where("special_tokens"));
  const json& pieces = s.array("single");
  for (size_t i = 0; i < pieces.size(); ++i) {
    Section piece(pieces[i], fmt::format("{}[{}]", s.where("single"), i));
    if (piece.has("Sequence")) {
      Section sequence(piece.value("Sequence"), piece.where("Sequence"));
      if (const std::string id = sequence.string("id"); id != "A")
        sequence.error("id", "'{}': a template of one text holds A alone", id);
      sequence.ignore("type_id");
      sequence.finish();
      if (seen) s.error("single", "the text stands in it twice");
      seen = true;
    } else if (piece.has("SpecialToken")) {
      Section token(piece.value("SpecialToken"), piece.where("SpecialToken"));
      const std::string name = token.string("id");
      token.ignore("type_id");
      token.finish();
      const std::vector<int32_t> add = special_ids(special.value(name), ids, special.where(name));
      auto& side = seen ? result.after : result.before;
      side.insert(side.end(), add.begin(), add.end());
    }
    piece.finish();
  }
  if (!seen) s.error("single", "the text does not stand in it");
  return result;
}

// ["[SEP]", 102]
int32_t token_and_id(Section& s, const std::string& name, int64_t ids) {
  const json& pair = s.array(name);
  const bool fits = pair.size() == 2 && pair[1].is_number_unsigned() &&
                    pair[1].get<uint64_t>() < static_cast<uint64_t>(ids);
  if (!fits) s.error(name, "expected [token, id] with an id below {}", ids);
  return pair[1].get<int32_t>();
}

PostProcess read_sequence(Section& s, int64_t ids) {
  PostProcess result;
  const json& list = s.array("processors");
  for (size_t i = 0; i < list.size(); ++i) {
    const PostProcess p =
        read_post_processor(list[i], ids, fmt::format("{}[{}]", s.where("processors"), i));
    result.before.insert(result.before.begin(), p.before.begin(), p.before.end());
    result.after.insert(result.after.end(), p.after.begin(), p.after.end());
  }
  return result;
}

PostProcess read_one(Section& s, int64_t ids) {
  const std::string type = s.string("type");
  if (type == "TemplateProcessing") return read_template(s, ids);
  if (type == "Sequence") return read_sequence(s, ids);
  if (type == "ByteLevel") {  // moves offsets, which plait does not report
    for (const char* name : {"add_prefix_space", "trim_offsets", "use_regex"}) s.ignore(name);
    return {};
  }
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    for (const char* name : {"add_prefix_space", "trim_offsets"}) s.ignore(name);
    const int32_t cls = token_and_id(s, "cls", ids), sep = token_and_id(s, "sep", ids);
    return {{cls}, {sep}};
  }
  s.error("type",
          "post-processor '{}' is not supported; supported are TemplateProcessing, ByteLevel, "
          "BertProcessing, RobertaProcessing, Sequence",
          type);
}

}  // namespace

PostProcess read_post_processor(const json& value, int64_t ids, const std::string& where) {
  if (value.is_null()) return {};
  Section s(value, where);
  PostProcess result = read_one(s, ids);
  s.finish();
  return result;
}

}  // namespace plait
