#include "fuzz.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "plait/base/rng.h"
#include "plait/io/files.h"

namespace plait {

namespace {

struct Folder {
  std::string path;
  Folder() {
    const auto base = std::filesystem::temp_directory_path();
    path = (base / ("plait-fuzz-" + std::to_string(getpid()))).string();
    std::filesystem::create_directories(path);
  }
  ~Folder() {
    std::error_code error;
    std::filesystem::remove_all(path, error);
  }
};

// Draws of one mutation.
class Draw {
 public:
  Draw(uint64_t seed, uint64_t index) : seed_(seed), next_(index << 16) {}
  size_t below(size_t n) {
    return n == 0 ? 0 : static_cast<size_t>(random_bits(seed_, Stream::test, next_++, 7) % n);
  }

 private:
  uint64_t seed_, next_;
};

// What readers trip over: limits of integers, deep nesting, broken UTF-8, words of the formats.
const std::vector<std::string>& awkward() {
  static const std::vector<std::string> all = {"0",
                                               "-1",
                                               "1",
                                               "4294967296",
                                               "9223372036854775807",
                                               "9223372036854775808",
                                               "18446744073709551615",
                                               "18446744073709551616",
                                               "-9223372036854775808",
                                               "1e309",
                                               "0.5",
                                               "null",
                                               "true",
                                               "{}",
                                               "[]",
                                               "\"\"",
                                               "\"",
                                               "{",
                                               "[",
                                               "]",
                                               "}",
                                               ",",
                                               ":",
                                               "\n",
                                               "\r\n",
                                               std::string(1, '\0'),
                                               std::string(8, '\xff'),
                                               "\xc0\xaf",
                                               "\xed\xa0\x80",
                                               "\xf4\x90\x80\x80",
                                               "\xe2\x82",
                                               "\\u0000",
                                               "\\ud800",
                                               std::string(300, '['),
                                               std::string(300, '{'),
                                               std::string(100, 'a'),
                                               "{{",
                                               "}}",
                                               "{%",
                                               "%}",
                                               "{{ x }}",
                                               "../",
                                               "/"};
  return all;
}

size_t next_digit(const std::string& s, size_t from) {
  const size_t at = s.find_first_of("0123456789", from);
  return at == std::string::npos ? s.find_first_of("0123456789") : at;
}

void mutate_once(std::string& s, const std::vector<std::string>& seeds, Draw& d) {
  const size_t at = d.below(s.size() + 1), length = 1 + d.below(std::min<size_t>(s.size() + 1, 64));
  switch (d.below(9)) {
    case 0:
      if (at < s.size()) s[at] = static_cast<char>(s[at] ^ (1 << d.below(8)));
      break;
    case 1:
      if (at < s.size()) s[at] = static_cast<char>(d.below(256));
      break;
    case 2:
      s.erase(std::min(at, s.size()), length);
      break;
    case 3:
      s.insert(at, awkward()[d.below(awkward().size())]);
      break;
    case 4:
      s.insert(at, s.substr(d.below(s.size() + 1), length));
      break;
    case 5:
      s.resize(at);
      break;
    case 6: {  // the beginning of this one, the end of another
      const std::string& other = seeds[d.below(seeds.size())];
      s = s.substr(0, at) + other.substr(d.below(other.size() + 1));
      break;
    }
    case 7: {  // another number in the place of one
      const size_t begin = next_digit(s, at);
      if (begin == std::string::npos) break;
      size_t end = begin;
      while (end < s.size() && s[end] >= '0' && s[end] <= '9') ++end;
      s.replace(begin, end - begin, awkward()[d.below(11)]);
      break;
    }
    default:  // eight bytes as a little-endian number
      for (size_t i = 0; i < 8 && at + i < s.size(); ++i)
        s[at + i] = static_cast<char>(d.below(3) == 0 ? d.below(256) : (d.below(2) == 0 ? 0 : 255));
  }
}

}  // namespace

const std::string& fuzz_folder() {
  static const Folder folder;
  return folder.path;
}

std::string fuzz_file(std::string_view name, std::string_view input) {
  std::string path = fuzz_folder() + "/" + std::string(name);
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  FILE* f = std::fopen(path.c_str(), "wb");
  if (f == nullptr) throw std::runtime_error("cannot write " + path);
  const size_t written = std::fwrite(input.data(), 1, input.size(), f);
  if (std::fclose(f) != 0 || written != input.size())
    throw std::runtime_error("cannot write " + path);
  return path;
}

std::string mutated(const std::vector<std::string>& seeds, uint64_t seed, uint64_t index) {
  Draw d(seed, index);
  std::string s = seeds[d.below(seeds.size())];
  for (size_t n = 1 + d.below(4); n > 0; --n) mutate_once(s, seeds, d);
  return s;
}

}  // namespace plait
