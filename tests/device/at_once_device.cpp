#include "tests/device/at_once_device.h"

#include <utility>

namespace moe {
namespace {

class AtOnceStream final : public Stream {
 public:
  AtOnceStream(std::unique_ptr<Stream> queue, std::shared_ptr<Failure> failure)
      : queue_(std::move(queue)), failure_(std::move(failure)) {}

  void launch(std::function<void(void*)> work) override {
    if (failure_->failed()) return;
    try {
      work(nullptr);
    } catch (...) {
      failure_->set(std::current_exception());
    }
  }
  bool calls_at_once() const override { return true; }
  void record(Event& event) override { queue_->record(event); }
  void wait(Event& event) override { queue_->wait(event); }
  void mark(Event& since) override { queue_->mark(since); }
  void hold(Event& since, Pace pace) override { queue_->hold(since, pace); }
  void copy(Copy copy) override { queue_->copy(copy); }
  void move(Moves moves) override { queue_->move(std::move(moves)); }
  std::unique_ptr<Event> make_event() override { return queue_->make_event(); }
  void synchronize() override { queue_->synchronize(); }

 private:
  const std::unique_ptr<Stream> queue_;
  const std::shared_ptr<Failure> failure_;
};

class AtOnceDevice final : public Device {
 public:
  std::unique_ptr<Stream> make_stream(std::string_view name, std::shared_ptr<Failure> failure,
                                      Urgency urgency) override {
    if (!failure) failure = std::make_shared<Failure>();
    return std::make_unique<AtOnceStream>(cpu_->make_stream(name, failure, urgency), failure);
  }
  std::unique_ptr<Event> make_event() override { return cpu_->make_event(); }
  Memory make_memory(int64_t bytes) override { return cpu_->make_memory(bytes); }
  Memory make_host_memory(int64_t bytes) override { return cpu_->make_host_memory(bytes); }

 private:
  const std::unique_ptr<Device> cpu_ = make_cpu_device();
};

}  // namespace

std::unique_ptr<Device> make_at_once_device() { return std::make_unique<AtOnceDevice>(); }

}  // namespace moe
