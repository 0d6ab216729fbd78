// 64-bit digest (XXH3) of text or bytes: ranks compare it to know that they run the same thing.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

namespace plait {

uint64_t digest(std::string_view bytes);

// The same, of bytes that come in parts.
class StreamDigest {
 public:
  StreamDigest();
  void add(std::string_view bytes);
  uint64_t value() const;  // of all so far: digest() of their concatenation

 private:
  struct Free {
    void operator()(void* state) const;
  };
  std::unique_ptr<void, Free> state_;
};

}  // namespace plait
