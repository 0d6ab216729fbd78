#include "plait/base/digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

namespace plait {

uint64_t digest(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

struct Digest128::State {
  XXH3_state_t* state = XXH3_createState();
  State() {
    if (state == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(state);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { XXH3_freeState(state); }
};

Digest128::Digest128() : state_(std::make_unique<State>()) {}
Digest128::Digest128(const Digest128& other) : Digest128() { *this = other; }
Digest128::~Digest128() = default;

Digest128& Digest128::operator=(const Digest128& other) {
  XXH3_copyState(state_->state, other.state_->state);
  return *this;
}

void Digest128::add(const void* data, size_t bytes) {
  if (bytes > 0) XXH3_128bits_update(state_->state, data, bytes);
}

std::string Digest128::text() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->state);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace plait
