#include "plait/base/digest.h"

#include <xxhash.h>

#include <new>

namespace plait {

uint64_t digest(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

namespace {
XXH3_state_t* as_state(void* state) { return static_cast<XXH3_state_t*>(state); }
}  // namespace

StreamDigest::StreamDigest() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(as_state(state_.get()));
}
void StreamDigest::Free::operator()(void* state) const { XXH3_freeState(as_state(state)); }
void StreamDigest::add(std::string_view bytes) {
  XXH3_64bits_update(as_state(state_.get()), bytes.data(), bytes.size());
}
uint64_t StreamDigest::value() const { return XXH3_64bits_digest(as_state(state_.get())); }

}  // namespace plait
