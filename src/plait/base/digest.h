// Digests (XXH3). 64 bits of text or bytes: ranks compare them to know that they run the same
// thing. 128 bits, piece by piece: checksums of files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace plait {

uint64_t digest(std::string_view bytes);

// XXH3-128 of everything that was added.
class Digest128 {
 public:
  Digest128();
  Digest128(const Digest128& other);
  Digest128& operator=(const Digest128& other);
  ~Digest128();
  void add(const void* data, size_t bytes);
  std::string text() const;  // 32 hexadecimal digits

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace plait
