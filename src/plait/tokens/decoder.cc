#include "plait/tokens/decoder.h"

#include <algorithm>
#include <cctype>

#include "plait/tokens/byte_level.h"
#include "plait/tokens/json_section.h"
#include "plait/tokens/pattern.h"
#include "plait/tokens/pre_tokenize.h"
#include "plait/tokens/tokenizer.h"
#include "plait/tokens/utf8.h"

namespace plait {

using nlohmann::json;
using Texts = std::vector<std::string>;

void append_byte_run(std::string& text, const std::string& bytes) {
  if (!find_invalid_utf8(bytes))
    text += bytes;
  else
    for (size_t i = 0; i < bytes.size(); ++i) text += "\xef\xbf\xbd";
}

int byte_fallback_value(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  if (std::isxdigit(static_cast<unsigned char>(token[3])) == 0 ||
      std::isxdigit(static_cast<unsigned char>(token[4])) == 0)
    return -1;
  return std::stoi(token.substr(3, 2), nullptr, 16);
}

namespace {

class ByteLevelDecoder final : public TokenDecoder {
 public:
  Texts apply(Texts tokens) const override {
    std::string bytes;
    for (const std::string& t : tokens) bytes += from_byte_level(t).value_or(t);
    return {replace_invalid_utf8(bytes)};
  }
};

class MetaspaceDecoder final : public TokenDecoder {
 public:
  MetaspaceDecoder(char32_t replacement, PrependScheme scheme) : scheme_(scheme) {
    append_utf8(mark_, replacement);
  }
  Texts apply(Texts tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool drop = i == 0 && scheme_ != PrependScheme::never;
      std::string out;
      for (size_t at = 0; at < tokens[i].size();) {
        const bool mark = tokens[i].compare(at, mark_.size(), mark_) == 0;
        if (mark && !drop) out += ' ';
        if (!mark) out += tokens[i][at];
        at += mark ? mark_.size() : 1;
      }
      tokens[i] = std::move(out);
    }
    return tokens;
  }

 private:
  std::string mark_;
  PrependScheme scheme_;
};

class ByteFallbackDecoder final : public TokenDecoder {
 public:
  Texts apply(Texts tokens) const override {
    Texts out;
    std::string run;
    const auto flush = [&] {
      if (run.empty()) return;
      out.emplace_back();
      append_byte_run(out.back(), run);
      run.clear();
    };
    for (std::string& t : tokens) {
      const int byte = byte_fallback_value(t);
      if (byte >= 0) {
        run.push_back(static_cast<char>(byte));
        continue;
      }
      flush();
      out.push_back(std::move(t));
    }
    flush();
    return out;
  }
};

class FuseDecoder final : public TokenDecoder {
 public:
  Texts apply(Texts tokens) const override {
    std::string all;
    for (const std::string& t : tokens) all += t;
    return {all};
  }
};

class StripDecoder final : public TokenDecoder {
 public:
  StripDecoder(char32_t content, int64_t start, int64_t stop) : start_(start), stop_(stop) {
    append_utf8(content_, content);
  }
  Texts apply(Texts tokens) const override {
    for (std::string& t : tokens) {
      std::string_view rest = t;
      for (int64_t i = 0; i < start_ && rest.starts_with(content_); ++i)
        rest.remove_prefix(content_.size());
      for (int64_t i = 0; i < stop_ && rest.ends_with(content_); ++i)
        rest.remove_suffix(content_.size());
      t = std::string(rest);
    }
    return tokens;
  }

 private:
  std::string content_;
  int64_t start_, stop_;
};

class ReplaceDecoder final : public TokenDecoder {
 public:
  ReplaceDecoder(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  Texts apply(Texts tokens) const override {
    for (std::string& t : tokens) {
      std::string out;
      size_t done = 0;
      pattern_.each_match(t, [&](size_t begin, size_t end) {
        out.append(t, done, begin - done);
        out += content_;
        done = end;
      });
      t = out.append(t, done);
    }
    return tokens;
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class SuffixDecoder final : public TokenDecoder {
 public:
  explicit SuffixDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  Texts apply(Texts tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool last = i + 1 == tokens.size();
      for (size_t at = tokens[i].find(suffix_); at != std::string::npos;
           at = tokens[i].find(suffix_, at + (last ? 0 : 1)))
        tokens[i].replace(at, suffix_.size(), last ? "" : " ");
    }
    return tokens;
  }

 private:
  std::string suffix_;
};

class ChainDecoder final : public TokenDecoder {
 public:
  explicit ChainDecoder(std::vector<std::unique_ptr<TokenDecoder>> parts)
      : parts_(std::move(parts)) {}
  Texts apply(Texts tokens) const override {
    for (const auto& p : parts_) tokens = p->apply(std::move(tokens));
    return tokens;
  }

 private:
  std::vector<std::unique_ptr<TokenDecoder>> parts_;
};

std::unique_ptr<TokenDecoder> read_chain(Section& s) {
  std::vector<std::unique_ptr<TokenDecoder>> parts;
  const json& list = s.array("decoders");
  for (size_t i = 0; i < list.size(); ++i) {
    auto part = read_decoder(list[i], fmt::format("{}[{}]", s.where("decoders"), i));
    if (part != nullptr) parts.push_back(std::move(part));
  }
  return std::make_unique<ChainDecoder>(std::move(parts));
}

std::unique_ptr<TokenDecoder> read_one(Section& s) {
  const std::string type = s.string("type");
  if (type == "ByteLevel") {
    for (const char* name : {"add_prefix_space", "trim_offsets", "use_regex"}) s.ignore(name);
    return std::make_unique<ByteLevelDecoder>();
  }
  if (type == "Metaspace") {
    s.ignore("str_rep");
    s.ignore("split");
    const char32_t replacement = s.character("replacement");
    return std::make_unique<MetaspaceDecoder>(replacement, read_prepend_scheme(s));
  }
  if (type == "ByteFallback") return std::make_unique<ByteFallbackDecoder>();
  if (type == "Fuse") return std::make_unique<FuseDecoder>();
  if (type == "Strip") {
    const char32_t content = s.character("content");
    const int64_t start = s.integer("start", 0, 1 << 20), stop = s.integer("stop", 0, 1 << 20);
    return std::make_unique<StripDecoder>(content, start, stop);
  }
  if (type == "Replace") {
    Pattern pattern = read_pattern(s);
    return std::make_unique<ReplaceDecoder>(std::move(pattern), s.string("content"));
  }
  if (type == "BPEDecoder") {
    const std::string suffix = s.string("suffix");
    if (suffix.empty()) s.error("suffix", "empty");
    return std::make_unique<SuffixDecoder>(suffix);
  }
  if (type == "Sequence") return read_chain(s);
  s.error("type",
          "decoder '{}' is not supported; supported are ByteLevel, Metaspace, ByteFallback, Fuse, "
          "Strip, Replace, BPEDecoder, Sequence",
          type);
}

}  // namespace

std::unique_ptr<TokenDecoder> read_decoder(const json& value, const std::string& where) {
  if (value.is_null()) return nullptr;
  Section s(value, where);
  auto result = read_one(s);
  s.finish();
  return result;
}

}  // namespace plait
