#include <atomic>
#include <chrono>
#include <cstring>

#include "plait/base/error.h"
#include "plait/comm/transport.h"

namespace plait {

struct LocalWorld::Shared {
  std::map<std::pair<int, int>, std::unique_ptr<Channel>> channels;
  std::atomic<bool> aborted{false};
  std::chrono::duration<double> limit{};
};

// A bounded queue with one sender and one receiver.
class LocalWorld::Channel {
 public:
  Channel(int slots, int64_t capacity) : slots_(static_cast<size_t>(slots)) {
    for (Slot& s : slots_) s.data.resize(static_cast<size_t>(capacity));
  }

  void send(const Strided& message, int to, Shared& shared) {
    std::unique_lock lock(mutex_);
    wait(
        lock, shared, [&] { return filled_ < slots_.size(); }, "room in the channel to", to);
    Slot& slot = slots_[(first_ + filled_) % slots_.size()];
    const auto bytes = static_cast<size_t>(message.bytes());
    if (bytes > slot.data.size())
      fail("a message of {} bytes to rank {}; the channel was made for {}", bytes, to,
           slot.data.size());
    lock.unlock();  // the slot is ours until it is counted
    const auto row = static_cast<size_t>(message.row_bytes);
    for (int64_t i = 0; i < message.rows && row > 0; ++i)
      std::memcpy(slot.data.data() + static_cast<size_t>(i) * row,
                  message.data + i * message.stride, row);
    slot.bytes = bytes;
    lock.lock();
    ++filled_;
    changed_.notify_all();
  }

  void receive(int from, int64_t bytes, Sink sink, Shared& shared) {
    std::unique_lock lock(mutex_);
    wait(
        lock, shared, [&] { return filled_ > 0; }, "a message from", from);
    Slot& slot = slots_[first_];
    if (static_cast<int64_t>(slot.bytes) != bytes)
      fail("a message of {} bytes from rank {}, expected {}", slot.bytes, from, bytes);
    lock.unlock();
    sink.take(sink.self, slot.data.data());
    lock.lock();
    first_ = (first_ + 1) % slots_.size();
    --filled_;
    changed_.notify_all();
  }

  void wake() {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

 private:
  struct Slot {
    std::vector<std::byte> data;
    size_t bytes = 0;
  };

  template <class Ready>
  void wait(std::unique_lock<std::mutex>& lock, Shared& shared, Ready ready, const char* what,
            int peer) {
    const bool in_time =
        changed_.wait_for(lock, shared.limit, [&] { return shared.aborted || ready(); });
    if (shared.aborted) fail("stopped, because another rank stopped");
    if (!in_time)
      fail("waited {} s for {} rank {}; this rank or that one hangs", shared.limit.count(), what,
           peer);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Slot> slots_;
  size_t first_ = 0, filled_ = 0;
};

class LocalWorld::End final : public Transport {
 public:
  End(Shared& shared, int rank) : shared_(shared), rank_(rank) {}
  int rank() const override { return rank_; }
  void send(int to, const Strided& message) override {
    channel(rank_, to).send(message, to, shared_);
    sent_bytes_ += message.bytes();
  }
  void receive(int from, int64_t bytes, Sink sink) override {
    channel(from, rank_).receive(from, bytes, sink, shared_);
  }

 private:
  Channel& channel(int from, int to) {
    const auto it = shared_.channels.find({from, to});
    if (it == shared_.channels.end()) fail("there is no channel from rank {} to rank {}", from, to);
    return *it->second;
  }
  Shared& shared_;
  int rank_;
};

LocalWorld::LocalWorld(int ranks, const ChannelPlan& channels, int slots, double limit_seconds)
    : shared_(std::make_unique<Shared>()) {
  shared_->limit = std::chrono::duration<double>(limit_seconds);
  for (const auto& [ends, bytes] : channels)
    shared_->channels[ends] = std::make_unique<Channel>(slots, bytes);
  for (int r = 0; r < ranks; ++r) ends_.push_back(std::make_unique<End>(*shared_, r));
}

LocalWorld::~LocalWorld() = default;

Transport& LocalWorld::transport(int rank) { return *ends_.at(static_cast<size_t>(rank)); }

void LocalWorld::abort() {
  shared_->aborted = true;
  for (auto& [ends, channel] : shared_->channels) channel->wake();
}

bool LocalWorld::aborted() const { return shared_->aborted; }

void receive_into(Transport& transport, int from, const Strided& target) {
  struct Copy {
    const Strided& to;
    static void take(void* self, const std::byte* data) {
      const Strided& t = static_cast<Copy*>(self)->to;
      for (int64_t i = 0; i < t.rows && t.row_bytes > 0; ++i)
        std::memcpy(t.data + i * t.stride, data + i * t.row_bytes,
                    static_cast<size_t>(t.row_bytes));
    }
  } copy{target};
  transport.receive(from, target.bytes(), {Copy::take, &copy});
}

}  // namespace plait
